//! What the server says by itself of the session's settings, whenever one of certain names changes: among them the search path (since
//! PostgreSQL 18), the time zone, and whether transactions only read (since 14).
//!
//! It speaks before it is ready for the next batch. So a value that differs between two batches is one that outlived its transaction.

use super::batch::Batch;
use super::connection::Connection;
use super::error::WireError;

/// The last value of each setting that was told.
#[derive(Debug, Default)]
pub(super) struct Reported {
    settings: Vec<Setting>,
    /// Whether one differs from what the session began with.
    has_changed: bool,
}

#[derive(Debug)]
struct Setting {
    name: Box<[u8]>,
    value: Box<[u8]>,
    /// `None` where it was told for the first time after the beginning.
    begun: Option<Box<[u8]>>,
}

impl Reported {
    /// Takes the body of a `ParameterStatus`.
    pub fn hear(&mut self, body: &[u8]) {
        /// PostgreSQL has about fifteen.
        const MOST: usize = 64;
        let mut texts = body.split(|byte| *byte == 0);
        let (Some(name), Some(value)) = (texts.next(), texts.next()) else { return };
        let has_room = self.settings.len() < MOST;
        match self.settings.iter_mut().find(|setting| &*setting.name == name) {
            Some(setting) => setting.value = value.into(),
            None if has_room => {
                self.settings.push(Setting { name: name.into(), value: value.into(), begun: None });
            }
            None => {}
        }
        self.has_changed = self.settings.iter().any(|setting| setting.begun.as_ref() != Some(&setting.value));
    }

    /// What is told now is what the session begins with.
    pub fn begin(&mut self) {
        for setting in &mut self.settings {
            setting.begun = Some(setting.value.clone());
        }
        self.has_changed = false;
    }

    /// What is told of these names is as it should be.
    pub fn accept<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        if !self.has_changed {
            return;
        }
        for name in names {
            for setting in self.settings.iter_mut().filter(|it| it.name.eq_ignore_ascii_case(name.as_bytes())) {
                setting.begun = Some(setting.value.clone());
            }
        }
        self.has_changed = self.settings.iter().any(|setting| setting.begun.as_ref() != Some(&setting.value));
    }

    /// Whether something is not as it was in the beginning.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }
}

impl Connection {
    /// Brings back what the session began with, if a batch is known to have left something else.
    ///
    /// # Errors
    /// Whatever keeps the session from it; it is of no use then.
    pub async fn restore(&mut self, prepared: bool) -> Result<(), WireError> {
        if !self.has_changed() {
            return Ok(());
        }
        let beginning = self.beginning();
        let settings = beginning.params();
        let outcome = self.run_plain(&beginning.behind(&Batch::new(), &settings), prepared).await;
        match &outcome {
            Ok(_) => {
                self.begins_anew();
                // What is still different is the server's own doing: that it is no longer a standby
                self.reported().begin();
            }
            Err(_) => self.say_goodbye(),
        }
        outcome.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_until_the_value_is_as_it_was() {
        let mut reported = Reported::default();
        reported.hear(b"TimeZone\0GMT\0");
        reported.hear(b"TimeZone\0UTC\0");
        reported.begin();
        reported.hear(b"TimeZone\0UTC\0");
        assert!(!reported.has_changed());
        reported.hear(b"TimeZone\0CET\0");
        reported.hear(b"search_path\0a\0");
        assert!(reported.has_changed());
        reported.hear(b"TimeZone\0UTC\0");
        assert!(reported.has_changed(), "the search path is new");
        reported.begin();
        assert!(!reported.has_changed());
        for nonsense in [&b""[..], b"x"] {
            reported.hear(nonsense);
            assert!(!reported.has_changed());
        }
    }
}
