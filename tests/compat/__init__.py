"""Whether the servers and the Pythons that README names are supported in fact: ``make compat``.

The tests of ``tests.txt`` and of ``quick.txt`` run against each pair of servers with both Kafka
clients, and with the newest pair on each Python; unit tests run on each Python too.
"""
