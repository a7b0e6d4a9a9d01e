"""The users that the server with SASL knows."""

from __future__ import annotations

from leaderq.zookeeper import Security

JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="wonderland"
    user_bob="builder";
};
"""
ALICE = Security(user="alice", password="wonderland", mechanism="DIGEST-MD5")
