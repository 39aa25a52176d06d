"""Breaking a cluster on purpose: what the owner asks for, and what becomes of each request.

``rules.py`` is the owner's side, ``board.py`` decides about requests and writes; what befalls nodes is done in
``control/faults.py``. An error takes a name in ``rules.py`` and an entry in ``board.py``; another kind of fault takes a
method of ``Faults``, too. Writes that are repeated or held back are carried out in ``engine/writes/writing.py``, which
asks its ``WriteFaults``.
"""
