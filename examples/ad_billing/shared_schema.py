"""What the ledger in PostgreSQL consists of; made by the first candidate. Charges are in millionths
of the currency.
"""

from __future__ import annotations

SCHEMA = """
CREATE TABLE IF NOT EXISTS billed (
    place     BIGINT GENERATED ALWAYS AS IDENTITY,   -- the order of billing
    topic     TEXT        NOT NULL,
    partition INTEGER     NOT NULL,
    "offset"  BIGINT      NOT NULL,
    number    BIGINT,                                -- what the generator counted
    client    TEXT        NOT NULL,
    resource  TEXT        NOT NULL,
    charge    BIGINT      NOT NULL,
    term      BIGINT      NOT NULL,
    candidate TEXT        NOT NULL,
    billed_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, partition, "offset")
);
CREATE INDEX IF NOT EXISTS billed_in_term ON billed (term, billed_at);

-- Who owes what.
CREATE OR REPLACE VIEW bills AS
    SELECT client, count(*) AS clicks, round(sum(charge) / 1e6, 2) AS charge
    FROM billed GROUP BY client ORDER BY 3 DESC;

-- All of it in one row; "twice" must be 0.
CREATE OR REPLACE VIEW totals AS
    SELECT count(*) AS billed, count(number) - count(DISTINCT number) AS twice,
           count(DISTINCT client) AS clients, round(sum(charge) / 1e6, 2) AS charge,
           count(DISTINCT term) AS terms
    FROM billed;

-- Each leader, and for how long billing stood still before it.
CREATE OR REPLACE VIEW terms AS
    SELECT term, candidate, count(*) AS billed, min(billed_at) AS first, max(billed_at) AS last,
           min(billed_at) - lag(max(billed_at)) OVER (ORDER BY term) AS stood_still
    FROM billed GROUP BY term, candidate ORDER BY term;
"""
