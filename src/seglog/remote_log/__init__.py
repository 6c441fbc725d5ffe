"""Tiering of a LogManager (KIP-405): its metadata manager, and the tasks that copy and expire.

    config = RemoteLogManagerConfig.from_properties(read_properties("server.properties"))
"""
