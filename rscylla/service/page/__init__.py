"""The page of a service.

status    the document that ``/status`` answers; fields of ``health.LaneFacts`` pass through it
history   the last minutes, so that charts begin at once
page      one answer of page.html, page.css, and page.js; ``page.js`` draws, and its ``lanes`` has the columns
"""
