//! The subjects and bodies in use: built-in ones, or those of the project.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::SystemTime,
};

use portico_base::colour::Colour;
use serde::Serialize;
use tracing::warn;

use crate::{HeaderLine, MailKind, Template, TemplateError};

/// The size of the largest template file, in bytes.
const LARGEST_FILE: u64 = 1_000_000;

/// The subject and body of every kind of email.
///
/// Clones share what they have read. A body that comes from a file is read again when the file has
/// changed; when that fails, the previous body stays in use and the reason is logged.
#[derive(Debug, Clone)]
pub struct Templates {
    subjects: BTreeMap<MailKind, Arc<Template>>,
    bodies: BTreeMap<MailKind, Arc<TemplateSource>>,
    built_in: Arc<BuiltIn>,
}

/// The built-in subjects and bodies.
type BuiltIn = BTreeMap<MailKind, (Template, Template)>;

/// The accent colour of Portico.
const ACCENT: &str = "#006b64";

/// The built-in templates in Portico's colour.
static OWN: LazyLock<Arc<BuiltIn>> =
    LazyLock::new(|| Arc::new(built_in(Colour::parse(ACCENT).expect("the accent is a colour"))));

fn built_in(accent: Colour) -> BuiltIn {
    MailKind::ALL
        .into_iter()
        .map(|kind| {
            let subject = Template::parse_text(kind.default_subject()).expect("built-in subjects are templates");
            let body = Template::parse(&kind.default_body(accent)).expect("built-in bodies are templates");
            (kind, (subject, body))
        })
        .collect()
}

impl Default for Templates {
    fn default() -> Self {
        Self { subjects: BTreeMap::new(), bodies: BTreeMap::new(), built_in: Arc::clone(&OWN) }
    }
}

/// The subject and body of an email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedMail {
    /// The subject, on one line.
    pub subject: HeaderLine,
    /// The body.
    pub html: String,
}

#[derive(Debug)]
enum TemplateSource {
    Fixed(Template),
    File {
        path: PathBuf,
        last: Mutex<ReadFile>,
    },
    /// Supplied by the caller. `None` until it has arrived.
    Expected(Mutex<Option<Arc<Template>>>),
}

#[derive(Debug, Clone)]
struct ReadFile {
    stamp: Option<(SystemTime, u64)>,
    template: Arc<Template>,
}

impl Templates {
    /// Returns the built-in templates in the accent colour of a product.
    pub fn with_accent(accent: Colour) -> Self {
        Self { built_in: Arc::new(built_in(accent)), ..Self::default() }
    }

    /// Replaces a subject.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] says where the text is no template.
    pub fn set_subject(&mut self, kind: MailKind, subject: &str) -> Result<(), TemplateError> {
        self.subjects.insert(kind, Arc::new(Template::parse_text(subject)?));
        Ok(())
    }

    /// Replaces a body.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] says where the text is no template.
    pub fn set_body(&mut self, kind: MailKind, html: &str) -> Result<(), TemplateError> {
        self.bodies.insert(kind, Arc::new(TemplateSource::Fixed(Template::parse(html)?)));
        Ok(())
    }

    /// Reads a body from a file, now and whenever the file has changed.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if the file cannot be read or is no template.
    pub fn set_body_file(&mut self, kind: MailKind, path: impl Into<PathBuf>) -> Result<(), TemplateError> {
        let path = path.into();
        let last = Mutex::new(read(&path)?);
        self.bodies.insert(kind, Arc::new(TemplateSource::File { path, last }));
        Ok(())
    }

    /// Announces a body that arrives later, by [`Templates::put_body`]; until then the built-in one
    /// is used.
    pub fn expect_body(&mut self, kind: MailKind) {
        self.bodies.insert(kind, Arc::new(TemplateSource::Expected(Mutex::default())));
    }

    /// Sets a body that was announced with [`Templates::expect_body`]; all clones use it from now
    /// on. A kind whose body was not announced keeps the one that it has.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] says where the text is no template; then the previous body stays.
    pub fn put_body(&self, kind: MailKind, html: &str) -> Result<(), TemplateError> {
        let template = Arc::new(Template::parse(html)?);
        if let Some(TemplateSource::Expected(place)) = self.bodies.get(&kind).map(AsRef::as_ref) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(template);
        }
        Ok(())
    }

    /// Renders the email of a kind. A template of the project's that fails while rendering is
    /// replaced by the built-in one, so that a code is delivered in any case; the reason is logged.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if the built-in template fails as well, which only variables beyond every
    /// limit can cause.
    pub fn render(&self, kind: MailKind, variables: &impl Serialize) -> Result<RenderedMail, TemplateError> {
        let subject = match self.subjects.get(&kind).map(|template| template.render(variables)) {
            Some(Ok(subject)) => subject,
            other => {
                if let Some(Err(error)) = other {
                    warn!(mail.kind = kind.key(), error = %error, "the subject of an email failed; the built-in one is used");
                }
                self.built_in[&kind].0.render(variables)?
            }
        };
        let own = self.bodies.get(&kind).and_then(|body| body.template());
        let html = match own.map(|template| template.render(variables)) {
            Some(Ok(html)) => html,
            other => {
                if let Some(Err(error)) = other {
                    warn!(mail.kind = kind.key(), error = %error, "the template of an email failed; the built-in one is used");
                }
                self.built_in[&kind].1.render(variables)?
            }
        };
        Ok(RenderedMail { subject: HeaderLine::flatten(&subject), html })
    }
}

impl TemplateSource {
    /// Returns the template. `None`: it has not arrived.
    fn template(&self) -> Option<Arc<Template>> {
        match self {
            Self::Fixed(template) => Some(Arc::new(template.clone())),
            Self::Expected(place) => place.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Self::File { path, last } => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if stamp(path) != last.stamp {
                    match read(path) {
                        Ok(file) => *last = file,
                        Err(error) => {
                            warn!(path = %path.display(), error = %error, "the email template cannot be used; the previous one stays")
                        }
                    }
                }
                Some(Arc::clone(&last.template))
            }
        }
    }
}

fn stamp(path: &std::path::Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(path: &std::path::Path) -> Result<ReadFile, TemplateError> {
    let stamp = stamp(path);
    if stamp.is_some_and(|(_, length)| length > LARGEST_FILE) {
        return Err(TemplateError::unreadable(format!("{} is larger than {LARGEST_FILE} bytes", path.display())));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| TemplateError::unreadable(format!("{} cannot be read: {error}", path.display())))?;
    Ok(ReadFile { stamp, template: Arc::new(Template::parse(&text)?) })
}
