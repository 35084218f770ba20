//! The project folder: config.toml, environment files, migrations and seeds
