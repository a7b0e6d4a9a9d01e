"""The demo: real servers, real candidates, and four changes of leader under a steady stream of records, audited at the end.

``ad_billing`` in here is a link to ``examples/ad_billing``: what the demo runs is the example, not a copy of it.
"""
