//! Properties of the functions in a database.

/// Properties of the functions in a database that decide what a session reset has to do. An
/// underestimate costs a restored session and never lets a value pass to another caller; see
/// [`reset`](crate::wire::session::reset).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionTraits {
    /// A function in an interpreted language is declared immutable, so plans may contain its
    /// results.
    pub folds: bool,
    /// A function may run `prepare`.
    pub prepares: bool,
    /// An expression has parts that PostgreSQL computes once and keeps for a session.
    pub keeps: bool,
    /// The version of the expressions that `keeps` was found at, where no event trigger reports
    /// another one: each transaction compares it.
    pub unwatched: Option<ExpressionVersion>,
}

/// The version of the expressions in a database, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpressionVersion {
    /// The version, which no other state of the expressions has.
    pub version: i64,
    /// The time at which it was read, in microseconds since 1970 of the database server's clock.
    pub read_at: i64,
}

impl FunctionTraits {
    /// The properties of a database that only has functions of PostgreSQL.
    pub const NONE: Self = Self { folds: false, prepares: false, keeps: false, unwatched: None };

    /// The properties that are assumed when nothing is known. PostgreSQL's own list, which the
    /// reset check reads after each transaction, adds [`keeps`](Self::keeps).
    pub const UNKNOWN: Self = Self { folds: true, prepares: true, keeps: false, unwatched: None };

    /// Loads the properties from the database. Where no event triggers maintain the list of
    /// functions, as in a database that was set up without a superuser, functions count as unknown,
    /// and the expressions are those of a version.
    ///
    /// # Errors
    /// PostgreSQL's error.
    pub async fn load(client: &tokio_postgres::Client) -> Result<Self, tokio_postgres::Error> {
        const IS_WATCHED: &str = "
            select pg_catalog.count(*) = 2
              from pg_catalog.pg_event_trigger
             where evtname in ('portico_functions_changed', 'portico_functions_dropped') and evtenabled = 'A'";
        // The list may lack a function that is older than the event triggers; no function may be
        // missing in both
        const TRAITS: &str = "
            select coalesce(pg_catalog.bit_or(bits), 0)
              from (select bit from portico_session.noted
                    union all
                    select case when folds then 1 else 0 end | case when prepares then 2 else 0 end from portico_session.traits) as all_traits (bits)";
        const VERSION: &str = "
            select version, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1e6::pg_catalog.float8)::pg_catalog.int8
              from portico_session.expressions";
        const KEPT: &str = "select distinct holder from portico_session.find_kept(null) order by 1";
        // Before the search, so that a change meanwhile counts as another version
        let version = client.query_one(VERSION, &[]).await?;
        let version = ExpressionVersion { version: version.get(0), read_at: version.get(1) };
        let kept: Vec<String> = client.query(KEPT, &[]).await?.iter().map(|row| row.get(0)).collect();
        if !kept.is_empty() {
            tracing::warn!(
                expressions = kept.join(", "),
                "connections of the data API end with each transaction: PostgreSQL keeps what immutable functions return in these expressions; let the functions take a column as argument"
            );
        }
        if client.query_one(IS_WATCHED, &[]).await?.get::<_, bool>(0) {
            let bits: i32 = client.query_one(TRAITS, &[]).await?.get(0);
            return Ok(Self::from_bits(u8::try_from(bits).unwrap_or(u8::MAX)));
        }
        Ok(Self { keeps: !kept.is_empty(), unwatched: Some(version), ..Self::UNKNOWN })
    }

    /// Returns these properties and those that are assumed when nothing is known.
    pub(crate) fn with_unknown(self) -> Self {
        Self { unwatched: self.unwatched, ..Self::from_bits(self.bits() | Self::UNKNOWN.bits()) }
    }

    /// Returns true if a version of the expressions, as PostgreSQL writes it, is another one than
    /// that of `keeps`.
    pub(crate) fn is_outdated(self, version: Option<&str>) -> bool {
        self.unwatched.is_some_and(|known| version.is_none_or(|version| version != known.version.to_string()))
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self { folds: bits & 1 != 0, prepares: bits & 2 != 0, keeps: bits & 4 != 0, unwatched: None }
    }

    pub(crate) fn bits(self) -> u8 {
        u8::from(self.folds) | (u8::from(self.prepares) << 1) | (u8::from(self.keeps) << 2)
    }
}
