//! People's only way in: authenticates, shows asks and signs answers; holds no data.
