"""A web server that collects clicks and answers before Kafka has them, without losing any."""
