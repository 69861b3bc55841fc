"""The values that the HTTP admin takes and gives: requests, answers, and ledgers as JSON.

``messages`` has requests and answers, ``ledger_json`` the JSON of a ledger's metadata. Pure.
"""
