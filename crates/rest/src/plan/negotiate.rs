//! Content negotiation: the choice among the media types that the client accepts.

use super::{BodyFormat, ResultShape};
use crate::error::RestError;
use crate::request::media::{ExplainRequest, MediaType};
use crate::schema::{MediaHandler, QualifiedName, Routine, SchemaCache};

/// The source of the response's rows.
#[derive(Debug, Clone, Copy)]
pub struct ResultSource<'a> {
    /// The relation of the rows, if the cache has it; for a function the relation of its row type.
    pub relation: Option<&'a QualifiedName>,
    /// The called function.
    pub routine: Option<&'a Routine>,
    /// Rows have all columns: `select` is absent or `*`. Handlers of one relation require that.
    pub whole_rows: bool,
}

/// The outcome of content negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiatedFormat {
    /// The format of the body.
    pub body_format: BodyFormat,
    /// `Content-Type`
    pub content_type: String,
    /// The response is the output of `EXPLAIN` instead of the body.
    pub explain: Option<ExplainRequest>,
}

impl NegotiatedFormat {
    /// Removes the body, for HEAD and for writes that return nothing.
    #[must_use]
    pub fn without_body(self) -> Self {
        Self { body_format: BodyFormat::Nothing, ..self }
    }
}

impl ResultSource<'_> {
    fn shape(&self) -> ResultShape {
        self.routine.map_or(ResultShape::Set, |routine| ResultShape::of_function(&routine.returns))
    }

    /// Returns the format for a media type, and the content type.
    fn body_format(&self, cache: &SchemaCache, media: &MediaType) -> Option<(BodyFormat, String)> {
        let shape = self.shape();
        let built_in = |body_format| Some((body_format, media.content_type()));
        match media {
            // These cannot be overridden
            MediaType::StrippedArray => built_in(BodyFormat::Json { shape, strip_nulls: true }),
            MediaType::Object { stripped } => built_in(BodyFormat::Object { shape, strip_nulls: *stripped }),
            MediaType::Explain(_) => None,
            _ => self.handler(cache, media).or_else(|| match media {
                MediaType::Any | MediaType::Json => {
                    Some((BodyFormat::Json { shape, strip_nulls: false }, MediaType::Json.content_type()))
                }
                MediaType::Csv => built_in(BodyFormat::Csv),
                MediaType::GeoJson => built_in(BodyFormat::GeoJson),
                _ => None,
            }),
        }
    }

    /// Returns a handler that the database's owner has defined: the function itself, then one for
    /// the rows of the relation, then one for any rows.
    fn handler(&self, cache: &SchemaCache, media: &MediaType) -> Option<(BodyFormat, String)> {
        let wanted = media.text();
        let content_type = |handler: &MediaHandler| match handler.media_type.as_str() {
            ANY => MediaType::Binary.content_type(),
            _ => media.content_type(),
        };
        if let Some(routine) = self.routine {
            let own =
                cache.media_handlers.iter().filter(|handler| handler.is_function && handler.function == routine.name);
            // For `*/*`, a function with a media type of its own responds in JSON
            let mut own = own.filter(|handler| handler.media_type == ANY || handler.media_type == wanted);
            if let Some(handler) = own.next() {
                return Some((BodyFormat::Value, content_type(handler)));
            }
        }
        let aggregates = || cache.media_handlers.iter().filter(|handler| !handler.is_function);
        let of_relation = |wanted: &str| {
            let relation = self.relation.filter(|_| self.whole_rows)?;
            aggregates().find(|handler| handler.relation.as_ref() == Some(relation) && handler.media_type == wanted)
        };
        let found = of_relation(ANY)
            .or_else(|| of_relation(&wanted))
            .or_else(|| aggregates().find(|handler| handler.relation.is_none() && handler.media_type == wanted))?;
        let body_format = BodyFormat::Handler {
            function: found.function.clone(),
            relation: found.relation.clone(),
            shape: self.shape(),
        };
        Some((body_format, content_type(found)))
    }
}

const ANY: &str = "*/*";

/// Chooses the first accepted type, in the client's order, that can be produced. `explain_enabled`:
/// `db-plan-enabled`.
///
/// # Errors
/// PGRST107 if there is none.
pub fn negotiate(
    cache: &SchemaCache,
    accepted: &[MediaType],
    source: ResultSource<'_>,
    explain_enabled: bool,
) -> Result<NegotiatedFormat, RestError> {
    let agree = |media: &MediaType| match media {
        MediaType::Explain(plan) if explain_enabled => {
            let (body_format, _) = source.body_format(cache, &plan.of)?;
            Some(NegotiatedFormat { body_format, content_type: media.content_type(), explain: Some(plan.clone()) })
        }
        media => {
            let (body_format, content_type) = source.body_format(cache, media)?;
            Some(NegotiatedFormat { body_format, content_type, explain: None })
        }
    };
    let agreed = accepted.iter().find_map(agree);
    agreed.ok_or_else(|| RestError::Unacceptable(accepted.iter().map(|media| media.text().into_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::testing::cinema;

    /// Negotiates for a relation (`films`) or a function (`hello()`).
    fn agree(
        subject: &str,
        whole_rows: bool,
        accept: &[&str],
        explain_enabled: bool,
    ) -> Result<NegotiatedFormat, RestError> {
        let cache = cinema();
        let accepted: Vec<_> = accept.iter().map(|text| MediaType::parse(text)).collect();
        let routine = subject.strip_suffix("()").map(|name| cache.routines_named("public", name)[0].clone());
        let relation = match &routine {
            Some(routine) => routine.returns.relation.clone(),
            None => Some(QualifiedName { schema: "public".into(), name: subject.into() }),
        };
        let source = ResultSource { relation: relation.as_ref(), routine: routine.as_deref(), whole_rows };
        negotiate(&cache, &accepted, source, explain_enabled)
    }

    fn made(subject: &str, whole_rows: bool, accept: &str) -> (BodyFormat, String) {
        let negotiated = agree(subject, whole_rows, &[accept], false).unwrap();
        (negotiated.body_format, negotiated.content_type)
    }

    fn handler(name: &str) -> BodyFormat {
        let relation = match name {
            "film_html" => Some("films"),
            "poster_image" => Some("posters"),
            _ => None,
        };
        let public = |name: &str| QualifiedName { schema: "public".into(), name: name.into() };
        BodyFormat::Handler { function: public(name), relation: relation.map(public), shape: ResultShape::Set }
    }

    const JSON: BodyFormat = BodyFormat::Json { shape: ResultShape::Set, strip_nulls: false };

    #[test]
    fn built_in_media_types_are_produced() {
        for (accept, body_format, content_type) in [
            ("*/*", JSON, "application/json; charset=utf-8"),
            ("application/json;version=1", JSON, "application/json; charset=utf-8"),
            ("application/vnd.pgrst.array", JSON, "application/json; charset=utf-8"),
            (
                "application/vnd.pgrst.array+json;nulls=stripped",
                BodyFormat::Json { shape: ResultShape::Set, strip_nulls: true },
                "application/vnd.pgrst.array+json;nulls=stripped; charset=utf-8",
            ),
            (
                "application/vnd.pgrst.object",
                BodyFormat::Object { shape: ResultShape::Set, strip_nulls: false },
                "application/vnd.pgrst.object+json; charset=utf-8",
            ),
            (
                "application/vnd.pgrst.object+json;nulls=stripped",
                BodyFormat::Object { shape: ResultShape::Set, strip_nulls: true },
                "application/vnd.pgrst.object+json;nulls=stripped; charset=utf-8",
            ),
            ("text/csv", BodyFormat::Csv, "text/csv; charset=utf-8"),
            ("application/geo+json", BodyFormat::GeoJson, "application/geo+json; charset=utf-8"),
        ] {
            assert_eq!(made("directors", true, accept), (body_format, content_type.to_owned()), "{accept}");
        }
    }

    #[test]
    fn the_first_type_that_can_be_produced_is_chosen() {
        let agreed = agree("directors", true, &["image/png", "text/csv", "application/json"], false).unwrap();
        assert_eq!(agreed.body_format, BodyFormat::Csv);
    }

    #[test]
    fn an_error_lists_the_types_that_cannot_be_produced() {
        for accept in ["text/plain", "text/xml", "application/octet-stream", "application/openapi+json", "image/png"] {
            let error = agree("directors", true, &[accept, "unheard/of"], false).unwrap_err();
            assert_eq!(error.message(), format!("None of these media types are available: {accept}, unheard/of"));
        }
    }

    #[test]
    fn explain_must_be_enabled_and_its_type_producible() {
        let accept = "application/vnd.pgrst.plan+json;for=\"text/csv\";options=analyze";
        let agreed = agree("directors", true, &[accept], true).unwrap();
        assert_eq!(agreed.body_format, BodyFormat::Csv);
        assert!(agreed.explain.is_some());
        assert_eq!(
            agreed.content_type,
            "application/vnd.pgrst.plan+json; for=\"text/csv\"; options=analyze; charset=utf-8"
        );
        assert!(agree("directors", true, &[accept], false).is_err());
        assert!(agree("directors", true, &["application/vnd.pgrst.plan;for=\"image/png\""], true).is_err());
    }

    #[test]
    fn handlers_of_a_relation_need_whole_rows() {
        assert_eq!(made("films", true, "text/html"), (handler("film_html"), "text/html".to_owned()));
        assert!(agree("films", false, &["text/html"], false).is_err());
        assert!(agree("directors", true, &["text/html"], false).is_err());
        assert_eq!(made("films_since()", true, "text/html"), (handler("film_html"), "text/html".to_owned()));
    }

    #[test]
    fn handlers_of_any_row_take_every_select() {
        let film = "application/vnd.cinema.film";
        for whole_rows in [true, false] {
            assert_eq!(made("directors", whole_rows, film), (handler("any_count"), film.to_owned()));
        }
    }

    #[test]
    fn a_handler_for_any_type_produces_all_but_the_reserved_types() {
        for accept in ["*/*", "application/json", "text/csv", "image/png"] {
            let expected = (handler("poster_image"), "application/octet-stream".to_owned());
            assert_eq!(made("posters", true, accept), expected, "{accept}");
        }
        assert_eq!(made("posters", false, "*/*").0, JSON);
        let object = BodyFormat::Object { shape: ResultShape::Set, strip_nulls: false };
        assert_eq!(made("posters", true, "application/vnd.pgrst.object+json").0, object);
    }

    #[test]
    fn a_function_with_a_media_type_produces_it_on_request() {
        assert_eq!(made("logo()", true, "image/png"), (BodyFormat::Value, "image/png".to_owned()));
        let scalar = BodyFormat::Json { shape: ResultShape::Scalar, strip_nulls: false };
        assert_eq!(made("logo()", true, "*/*").0, scalar);
        assert_eq!(made("logo()", true, "application/json").0, scalar);
        assert!(agree("logo()", true, &["text/html"], false).is_err());
    }

    #[test]
    fn a_function_can_produce_an_openapi_document() {
        let openapi = "application/openapi+json";
        let accepted = [MediaType::parse(openapi)];
        let mut cache = cinema();
        let agree = |cache: &SchemaCache| {
            let hello = cache.routines_named("public", "hello")[0].clone();
            let source = ResultSource { relation: None, routine: Some(&hello), whole_rows: true };
            negotiate(cache, &accepted, source, false).map(|agreed| (agreed.body_format, agreed.content_type))
        };
        assert!(agree(&cache).is_err());
        cache.media_handlers.push(MediaHandler {
            media_type: openapi.into(),
            function: QualifiedName { schema: "public".into(), name: "hello".into() },
            relation: None,
            is_function: true,
        });
        assert_eq!(agree(&cache).unwrap(), (BodyFormat::Value, format!("{openapi}; charset=utf-8")));
    }

    #[test]
    fn the_body_format_of_a_function_has_the_shape_of_its_result() {
        assert_eq!(made("hello()", true, "text/csv").0, BodyFormat::Csv);
        let object = |shape| BodyFormat::Object { shape, strip_nulls: false };
        assert_eq!(made("hello()", true, "application/vnd.pgrst.object").0, object(ResultShape::Scalar));
        assert_eq!(made("films_since()", true, "application/vnd.pgrst.object").0, object(ResultShape::Set));
    }
}
