//! Templates in the language of Go's `html/template`, as far as emails use it.
//!
//! Existing projects bring their emails in that language (`docs/accounts.md`, "Emails"). Supported:
//! fields (`.Data.name`), variables, pipelines, `if`, `else if`, `with`, `range` with `break` and
//! `continue`, `define`, `template`, `block`, comments, trim markers, all functions but `call`, and
//! the escaping of values for the place where they stand: text, attributes, links, scripts and
//! styles.
//!
//! Where the language would stop an email because a person's data has another shape than its author
//! thought (a field of a text, a missing list), nothing is written instead. Numbers print as people
//! write them (`1000000`, not `1e+06`). Rendering ends at a limit of work, depth and output, so a
//! template cannot hold up its server.

mod error;
mod escape;
mod functions;
mod html_context;
mod html_syntax;
mod lexer;
mod parser;
mod printf;
mod run;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

use serde::Serialize;

pub use error::TemplateError;

/// The longest template that is parsed (the default of `GOTRUE_MAILER_TEMPLATE_MAX_SIZE`).
const LONGEST: usize = 1_000_000;

/// A parsed template. Clones share the tree.
#[derive(Debug, Clone)]
pub struct Template {
    tree: Arc<parser::Tree>,
    is_html: bool,
}

impl Template {
    /// Parses an HTML template: every value is escaped for the place where it stands.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] says where and what.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::new(text, true)
    }

    /// Parses a template for plain text, such as a subject: values are written as they are.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] says where and what.
    pub fn parse_text(text: &str) -> Result<Self, TemplateError> {
        Self::new(text, false)
    }

    fn new(text: &str, is_html: bool) -> Result<Self, TemplateError> {
        if text.len() > LONGEST {
            return Err(TemplateError::unreadable(format!("the template is longer than {LONGEST} bytes")));
        }
        Ok(Self { tree: Arc::new(parser::parse(text)?), is_html })
    }

    /// Writes the template with the given variables; names that are absent render as nothing.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] when a function gets what it cannot take, or the output or the work passes
    /// its limit.
    pub fn render(&self, variables: &impl Serialize) -> Result<String, TemplateError> {
        let data = serde_json::to_value(variables)
            .map_err(|error| TemplateError::unreadable(format!("the variables cannot be read: {error}")))?;
        let writer = match self.is_html {
            true => run::TemplateWriter::Html(html_context::HtmlWriter::new()),
            false => run::TemplateWriter::Text(String::new()),
        };
        run::run(&self.tree, &data, writer)
    }
}
