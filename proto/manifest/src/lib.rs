//! Task manifests: parsed into typed rules, decided and explained; never reads a file.
