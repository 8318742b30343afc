//! Whom to refuse although their certificate is good: SPIFFE ids and serial numbers, exact matches only.
