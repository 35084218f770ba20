//! Values in PostgreSQL's binary form, rendered as PostgreSQL renders them in JSON. It takes the
//! server a fraction of the time.

use portico_database::wire::Row;

use crate::error::{Result, StorageError};

/// The microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// The days from 0000-03-01 to 2000-01-01, the zero of PostgreSQL's times.
const EPOCH: i64 = 730_425;
/// The days of 400 years, after which the calendar repeats itself.
const CYCLE: i64 = 146_097;

/// Returns a column that is a `jsonb`, as JSON text.
///
/// # Errors
/// [`StorageError::Internal`] if the value has another form.
pub(crate) fn json(row: &Row, column: usize) -> Result<Option<&str>> {
    let Some(value) = row.bytes(column) else { return Ok(None) };
    let text = value.strip_prefix(&[1]).and_then(|text| std::str::from_utf8(text).ok());
    text.map(Some).ok_or(StorageError::Internal)
}

/// Returns a column that is a `uuid`, as text.
///
/// # Errors
/// [`StorageError::Internal`] if the value has another form.
pub(crate) fn uuid(row: &Row, column: usize) -> Result<Option<[u8; 36]>> {
    let Some(value) = row.bytes(column) else { return Ok(None) };
    let value: &[u8; 16] = value.try_into().map_err(|_| StorageError::Internal)?;
    let mut text = [b'-'; 36];
    let places = (0..36).filter(|place| ![8, 13, 18, 23].contains(place));
    let digits = value.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in places.zip(digits) {
        text[place] = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
    }
    Ok(Some(text))
}

/// Returns a column that is a `timestamptz`, as clients read it: ISO 8601 in UTC with milliseconds.
/// An infinite one has no such form, and is `None` like a null.
///
/// # Errors
/// [`StorageError::Internal`] if the value has another form.
pub(crate) fn timestamp(row: &Row, column: usize) -> Result<Option<TimestampText>> {
    let Some(value) = row.bytes(column) else { return Ok(None) };
    let value = i64::from_be_bytes(value.try_into().map_err(|_| StorageError::Internal)?);
    Ok(TimestampText::new(value))
}

/// The text of a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampText {
    text: [u8; Self::LONGEST],
    length: usize,
}

impl TimestampText {
    /// The length with a year of six digits, the largest that PostgreSQL has.
    const LONGEST: usize = 26;

    /// `value`: microseconds since 2000-01-01. As `to_char` does, milliseconds are cut off, and a
    /// year before Christ is written without its sign.
    fn new(value: i64) -> Option<Self> {
        if value == i64::MAX || value == i64::MIN {
            return None;
        }
        let (days, of_day) = (value.div_euclid(DAY) + EPOCH, value.rem_euclid(DAY));
        // Years that begin in March end with the leap day
        let (cycle, of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
        let year_of_cycle = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / (CYCLE - 1)) / 365;
        let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let month_of_year = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_of_year + 2) / 5 + 1;
        let month = if month_of_year < 10 { month_of_year + 3 } else { month_of_year - 9 };
        let year = 400 * cycle + year_of_cycle + i64::from(month <= 2);
        let year = if year <= 0 { 1 - year } else { year };
        let milliseconds = of_day / 1000;
        let mut written = Self { text: [0; Self::LONGEST], length: 0 };
        written.number(
            year,
            if year < 10_000 {
                4
            } else if year < 100_000 {
                5
            } else {
                6
            },
            b'-',
        );
        written.number(month, 2, b'-');
        written.number(day, 2, b'T');
        written.number(milliseconds / 3_600_000, 2, b':');
        written.number(milliseconds / 60_000 % 60, 2, b':');
        written.number(milliseconds / 1000 % 60, 2, b'.');
        written.number(milliseconds % 1000, 3, b'Z');
        Some(written)
    }

    /// Appends a number with all its digits, and what follows it.
    fn number(&mut self, number: i64, digits: usize, behind: u8) {
        let mut rest = number;
        for place in (self.length..self.length + digits).rev() {
            self.text[place] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        self.text[self.length + digits] = behind;
        self.length += digits + 1;
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.text.get(..self.length).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::OffsetDateTime;
    use time::macros::datetime;

    use super::*;

    proptest! {
        #[test]
        fn a_time_is_written_as_the_calendar_has_it(value in -60_000_000_000_000_000..250_000_000_000_000_000_i64) {
            let time: OffsetDateTime = datetime!(2000-01-01 0:00 UTC) + time::Duration::microseconds(value);
            let text = TimestampText::new(value).unwrap();
            prop_assert_eq!(text.as_str(), crate::model::timestamp(time));
        }
    }

    #[test]
    fn every_time_has_a_text_or_none() {
        assert!(TimestampText::new(i64::MAX).is_none() && TimestampText::new(i64::MIN).is_none());
        // The bounds of 64 bits, which PostgreSQL does not reach
        for value in [i64::MAX - 1, i64::MIN + 1] {
            assert_eq!(TimestampText::new(value).unwrap().as_str().len(), TimestampText::LONGEST);
        }
    }
}
