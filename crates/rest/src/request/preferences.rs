//! `Prefer` and `Preference-Applied`.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::RestError;

/// `Prefer`
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The limit of items, which is far more than there are preferences.
const MAX_ITEMS: usize = 64;

/// The preferences of a client; `None` where it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `resolution`
    pub resolution: Option<Resolution>,
    /// `missing`
    pub missing: Option<MissingPreference>,
    /// `return`
    pub returned: Option<ReturnPreference>,
    /// `count`
    pub count: Option<CountMode>,
    /// `tx`; effective only if the configuration allows it.
    pub transaction: Option<TransactionPreference>,
    /// `handling`
    pub handling: Option<Handling>,
    /// `timezone`: a name that PostgreSQL knows.
    pub timezone: Option<String>,
    /// `max-affected` as sent. [`Preferences::max_affected`] returns the effective limit.
    pub max_affected_sent: Option<i64>,
    /// Unknown items, in their order.
    pub unknown: Vec<String>,
}

/// The treatment of existing rows by a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// They are updated.
    MergeDuplicates,
    /// They are skipped.
    IgnoreDuplicates,
}

/// The value of a column that an object of the body does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPreference {
    /// The column's default.
    Default,
    /// NULL.
    Null,
}

/// The content of the response to a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReturnPreference {
    /// No body.
    #[default]
    Minimal,
    /// No body, but `Location`.
    HeadersOnly,
    /// The rows.
    Representation,
}

/// The way in which rows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountMode {
    /// The exact number.
    Exact,
    /// The planner's estimate.
    Planned,
    /// The exact number up to a limit, the estimate above it.
    Estimated,
}

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionPreference {
    /// With a commit.
    Commit,
    /// With a rollback.
    Rollback,
}

/// The treatment of unknown preferences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// They are rejected, and `max-affected` is effective.
    Strict,
    /// They are ignored.
    Lenient,
}

/// The preferences that an action honours. All actions honour `count`, `handling` and `timezone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HonouredPreferences {
    /// `resolution`: a POST on a table with a primary key or with `on_conflict`.
    pub resolution: bool,
    /// `missing`: POST and PATCH.
    pub missing: bool,
    /// `return`: writes on relations.
    pub returned: bool,
    /// `tx`: the configuration lets clients choose.
    pub transaction: bool,
    /// `max-affected`: PATCH, DELETE and functions.
    pub max_affected: bool,
}

/// Returns true for a time zone that is an offset from UTC, such as `-4` or `05:30`.
pub fn is_offset(zone: &str) -> bool {
    let digits = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "00"));
    digits(hours.strip_prefix(['+', '-']).unwrap_or(hours)) && minutes.len() == 2 && digits(minutes) && minutes < "60"
}

/// A parsed item.
enum PreferenceItem<'a> {
    Resolution(Resolution),
    Missing(MissingPreference),
    Return(ReturnPreference),
    Count(CountMode),
    Transaction(TransactionPreference),
    Handling(Handling),
    Timezone(&'a str),
    MaxAffected(i64),
}

impl Preferences {
    /// Parses all `Prefer` headers. The first item of a kind is used. A time zone that
    /// `knows_timezone` does not know is an unknown item.
    pub fn parse(headers: &HeaderMap, knows_timezone: impl Fn(&str) -> bool) -> Self {
        let mut preferences = Self::default();
        let texts = headers.get_all(PREFER).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let mut items = 0;
        for text in texts {
            for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                items += 1;
                if items > MAX_ITEMS {
                    return preferences;
                }
                match PreferenceItem::parse(item)
                    .filter(|item| !matches!(item, PreferenceItem::Timezone(name) if !knows_timezone(name)))
                {
                    Some(item) => preferences.take(item),
                    None => preferences.unknown.push(item.to_owned()),
                }
            }
        }
        preferences
    }

    /// Returns true if `handling=strict` was sent.
    pub fn is_strict(&self) -> bool {
        self.handling == Some(Handling::Strict)
    }

    /// Returns the limit of affected rows. `max-affected` is effective only with `handling=strict`;
    /// `execute::max_affected` checks it.
    pub fn max_affected(&self) -> Option<i64> {
        self.max_affected_sent.filter(|_| self.is_strict())
    }

    /// Checks that there are no unknown items with `handling=strict`.
    ///
    /// # Errors
    /// PGRST122.
    pub fn reject_unknown(&self) -> Result<(), RestError> {
        if self.is_strict() && !self.unknown.is_empty() {
            return Err(RestError::Preferences(self.unknown.clone()));
        }
        Ok(())
    }

    /// Returns `Preference-Applied` for an action that honours `honoured`; `None` if no preference
    /// was applied.
    pub fn applied(&self, honoured: HonouredPreferences) -> Option<HeaderValue> {
        let mut applied: Vec<String> = Vec::new();
        let mut push = |text: Option<&str>| applied.extend(text.map(str::to_owned));
        push(self.resolution.filter(|_| honoured.resolution).map(Resolution::text));
        push(self.missing.filter(|_| honoured.missing).map(MissingPreference::text));
        push(self.returned.filter(|_| honoured.returned).map(ReturnPreference::text));
        push(self.count.map(CountMode::text));
        push(self.transaction.filter(|_| honoured.transaction).map(TransactionPreference::text));
        push(self.handling.map(Handling::text));
        push(self.timezone.as_ref().map(|name| format!("timezone={name}")).as_deref());
        let max = self.max_affected().filter(|_| honoured.max_affected);
        push(max.map(|max| format!("max-affected={max}")).as_deref());
        if applied.is_empty() { None } else { HeaderValue::from_str(&applied.join(", ")).ok() }
    }

    fn take(&mut self, item: PreferenceItem<'_>) {
        match item {
            PreferenceItem::Resolution(value) => _ = self.resolution.get_or_insert(value),
            PreferenceItem::Missing(value) => _ = self.missing.get_or_insert(value),
            PreferenceItem::Return(value) => _ = self.returned.get_or_insert(value),
            PreferenceItem::Count(value) => _ = self.count.get_or_insert(value),
            PreferenceItem::Transaction(value) => _ = self.transaction.get_or_insert(value),
            PreferenceItem::Handling(value) => _ = self.handling.get_or_insert(value),
            PreferenceItem::Timezone(value) => _ = self.timezone.get_or_insert_with(|| value.to_owned()),
            PreferenceItem::MaxAffected(value) => _ = self.max_affected_sent.get_or_insert(value),
        }
    }
}

impl<'a> PreferenceItem<'a> {
    fn parse(item: &'a str) -> Option<Self> {
        Some(match item {
            "resolution=merge-duplicates" => Self::Resolution(Resolution::MergeDuplicates),
            "resolution=ignore-duplicates" => Self::Resolution(Resolution::IgnoreDuplicates),
            "missing=default" => Self::Missing(MissingPreference::Default),
            "missing=null" => Self::Missing(MissingPreference::Null),
            "return=minimal" => Self::Return(ReturnPreference::Minimal),
            "return=headers-only" => Self::Return(ReturnPreference::HeadersOnly),
            "return=representation" => Self::Return(ReturnPreference::Representation),
            "count=exact" => Self::Count(CountMode::Exact),
            "count=planned" => Self::Count(CountMode::Planned),
            "count=estimated" => Self::Count(CountMode::Estimated),
            "tx=commit" => Self::Transaction(TransactionPreference::Commit),
            "tx=rollback" => Self::Transaction(TransactionPreference::Rollback),
            "handling=strict" => Self::Handling(Handling::Strict),
            "handling=lenient" => Self::Handling(Handling::Lenient),
            other => match other.split_once('=')? {
                ("timezone", name) => Self::Timezone(name),
                ("max-affected", number) => Self::MaxAffected(number.parse().ok()?),
                _ => return None,
            },
        })
    }
}

impl Resolution {
    fn text(self) -> &'static str {
        match self {
            Self::MergeDuplicates => "resolution=merge-duplicates",
            Self::IgnoreDuplicates => "resolution=ignore-duplicates",
        }
    }
}

impl MissingPreference {
    fn text(self) -> &'static str {
        match self {
            Self::Default => "missing=default",
            Self::Null => "missing=null",
        }
    }
}

impl ReturnPreference {
    fn text(self) -> &'static str {
        match self {
            Self::Minimal => "return=minimal",
            Self::HeadersOnly => "return=headers-only",
            Self::Representation => "return=representation",
        }
    }
}

impl CountMode {
    fn text(self) -> &'static str {
        match self {
            Self::Exact => "count=exact",
            Self::Planned => "count=planned",
            Self::Estimated => "count=estimated",
        }
    }
}

impl TransactionPreference {
    fn text(self) -> &'static str {
        match self {
            Self::Commit => "tx=commit",
            Self::Rollback => "tx=rollback",
        }
    }
}

impl Handling {
    fn text(self) -> &'static str {
        match self {
            Self::Strict => "handling=strict",
            Self::Lenient => "handling=lenient",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Preferences {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER, HeaderValue::from_str(value).unwrap());
        }
        Preferences::parse(&headers, |name| name == "Europe/Oslo")
    }

    const ALL: HonouredPreferences =
        HonouredPreferences { resolution: true, missing: true, returned: true, transaction: true, max_affected: true };

    #[test]
    fn every_preference_is_read_and_applied_in_the_fixed_order() {
        let preferences = read(&[
            "max-affected=5 ,timezone=Europe/Oslo, handling=strict,tx=rollback",
            "count=exact,return=representation,missing=default, resolution=merge-duplicates",
        ]);
        assert_eq!(preferences.unknown, [""; 0]);
        assert_eq!(preferences.max_affected(), Some(5));
        assert_eq!(
            preferences.applied(ALL).unwrap(),
            "resolution=merge-duplicates, missing=default, return=representation, count=exact, tx=rollback, handling=strict, \
             timezone=Europe/Oslo, max-affected=5"
        );
        assert_eq!(
            preferences.applied(HonouredPreferences::default()).unwrap(),
            "count=exact, handling=strict, timezone=Europe/Oslo"
        );
        assert_eq!(read(&[]).applied(ALL), None);
        for text in [
            "resolution=ignore-duplicates",
            "missing=null",
            "return=minimal",
            "return=headers-only",
            "count=planned",
            "count=estimated",
            "tx=commit",
            "handling=lenient",
        ] {
            assert_eq!(read(&[text]).applied(ALL).unwrap(), text);
        }
    }

    #[test]
    fn the_first_item_of_a_kind_is_used() {
        let preferences = read(&["count=planned, count=exact", "count=estimated"]);
        assert_eq!(preferences.count, Some(CountMode::Planned));
        assert_eq!(preferences.unknown, [""; 0]);
    }

    #[test]
    fn unknown_items_are_rejected_only_when_handling_is_strict() {
        let items =
            "foo, Return=minimal, return = minimal, params=single-object, timezone=Moon, max-affected=many, ,bar";
        assert_eq!(read(&[items]).reject_unknown(), Ok(()));
        let Err(RestError::Preferences(unknown)) = read(&[items, "handling=strict"]).reject_unknown() else { panic!() };
        let expected = [
            "foo",
            "Return=minimal",
            "return = minimal",
            "params=single-object",
            "timezone=Moon",
            "max-affected=many",
            "bar",
        ];
        assert_eq!(unknown, expected);
    }

    #[test]
    fn max_affected_applies_only_when_handling_is_strict() {
        let preferences = read(&["max-affected=5"]);
        assert_eq!((preferences.max_affected(), preferences.applied(ALL)), (None, None));
        assert_eq!(read(&["handling=lenient, handling=strict, max-affected=5"]).max_affected(), None);
    }
}
