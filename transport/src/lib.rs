//! How services meet: mTLS, peer identity, the method table, deadlines, status, tracing and drain; never what they say.
