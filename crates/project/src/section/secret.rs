//! Secrets: text that is never shown, and may be written as `encrypted:...`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use portico_base::Secret;

use super::Section;
use super::found_value::{ValueSource, reference};
use crate::document::Value;
use crate::error::SourcePosition;

impl Section<'_, '_, '_> {
    /// Reads a secret, decrypted if it is written as `encrypted:...`. An empty one counts as unset.
    pub fn secret(&mut self, name: &'static str) -> Option<Secret> {
        self.asked.push(name);
        self.any_secret(name)
    }

    /// Reads a secret under one of the user's own names.
    pub fn any_secret(&mut self, name: &str) -> Option<Secret> {
        let found = self.find(name)?;
        let key = self.key(name);
        let text = match &found.value {
            ValueSource::Text(text) | ValueSource::Written(Value::Text(text)) => text.clone(),
            ValueSource::Written(Value::Integer(number)) => number.to_string(),
            ValueSource::Written(value) => {
                let message = format!("{key}: expected text, found {}", value.kind());
                self.reading.fail(found.position, key, message);
                return None;
            }
        };
        self.decrypted(key, found.position, text)
    }

    /// Reads secrets whose names are the user's own: a list of texts `name:secret`, in which names
    /// keep their case, or a table, whose names are lower-case. A secret may be `env(NAME)`.
    pub fn named_secrets(&mut self, name: &'static str) -> BTreeMap<String, Secret> {
        if self.holds_table(name) {
            let mut table = self.section(name);
            let names = table.names();
            return names.into_iter().filter_map(|id| Some((id.to_owned(), table.any_secret(id)?))).collect();
        }
        let mut secrets = BTreeMap::new();
        for item in self.list(name).unwrap_or_default() {
            let (key, position) = (self.key(name), self.position(name));
            let Some((id, text)) = item.split_once(':').filter(|(id, _)| !id.trim().is_empty()) else {
                // The text may be a secret without its name
                self.reading.fail(position, key.clone(), format!("{key}: expected texts such as \"name:secret\""));
                continue;
            };
            let text = match reference(text) {
                None => text.to_owned(),
                Some(variable) => match self.reading.environment.get(variable) {
                    Some(value) => value.to_owned(),
                    None => {
                        self.report_unset(name, variable, position);
                        continue;
                    }
                },
            };
            match secrets.entry(id.trim().to_owned()) {
                Entry::Occupied(known) => {
                    self.reading.fail(
                        position,
                        key.clone(),
                        format!("{key}: there are two of the name {:?}", known.key()),
                    );
                }
                Entry::Vacant(free) => {
                    if let Some(secret) = self.decrypted(key, position, text) {
                        free.insert(secret);
                    }
                }
            }
        }
        secrets
    }

    fn decrypted(&self, key: String, position: Option<SourcePosition>, text: String) -> Option<Secret> {
        match text.strip_prefix("encrypted:") {
            None => Some(text).filter(|text| !text.is_empty()).map(Secret::new),
            // A feature that is off needs no key
            Some(_) if self.quiet => None,
            Some(message) => match self.reading.keys.decrypt(message) {
                Ok(plain) => Some(plain),
                Err(error) => {
                    let message = format!("{key}: failed to decrypt the value: {error}");
                    self.reading.fail(position, key, message);
                    None
                }
            },
        }
    }
}
