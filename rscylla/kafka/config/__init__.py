"""The properties of a connector.

properties   ``Properties``: read, resolved, checked against one table
files        files of properties and references in their values; redaction: texts without secrets
verdicts     what the Java connector would refuse
client       names of Java's producer as those of librdkafka; keystores: files of TLS
"""
