//! JSON-RPC wire types of the gateway's dialects, decoded strictly, and the bounded WebSocket client.
