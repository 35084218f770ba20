//! Runs a template.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    TemplateError,
    functions::Function,
    html_context::HtmlWriter,
    parser::{Pipeline, TemplateCommand, TemplateNode, TemplateOperand, Tree},
    value,
};

/// The largest text that a template can become.
const LARGEST_OUTPUT: usize = 4 << 20;
/// Work that a template can cause: one per step, more for long texts.
const MOST_WORK: usize = 2_000_000;
/// The greatest depth of nested blocks, parentheses and calls while running.
const DEEPEST: usize = 128;

pub(super) enum TemplateWriter {
    Html(HtmlWriter),
    Text(String),
}

impl TemplateWriter {
    fn length(&self) -> usize {
        match self {
            Self::Html(html) => html.out.len(),
            Self::Text(text) => text.len(),
        }
    }
}

impl TemplateWriter {
    /// Returns true if the next value is escaped as this function escapes it.
    fn escapes_like(&self, function: Function) -> bool {
        match (self, function) {
            (Self::Html(_), Function::Html) => true,
            (Self::Html(html), Function::UrlQuery) => html.is_in_query(),
            _ => false,
        }
    }
}

/// The effect of a block on the loop around it.
#[derive(PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

pub(super) fn run(tree: &Tree, data: &Value, writer: TemplateWriter) -> Result<String, TemplateError> {
    let mut runner = Runner { tree, writer, variables: vec![("", Cow::Borrowed(data))], depth: 0, work: 0 };
    runner.block(&tree.nodes, &Cow::Borrowed(data))?;
    Ok(match runner.writer {
        TemplateWriter::Html(html) => html.into(),
        TemplateWriter::Text(text) => text,
    })
}

struct Runner<'t> {
    tree: &'t Tree,
    writer: TemplateWriter,
    variables: Vec<(&'t str, Cow<'t, Value>)>,
    depth: usize,
    work: usize,
}

type TemplateValue<'t> = Cow<'t, Value>;

impl<'t> Runner<'t> {
    fn block(&mut self, nodes: &'t [TemplateNode], dot: &TemplateValue<'t>) -> Result<Flow, TemplateError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(TemplateError::at(1, "the template nests too deeply"));
        }
        let scope = self.variables.len();
        let mut flow = Flow::Next;
        for node in nodes {
            flow = self.node(node, dot)?;
            if flow != Flow::Next {
                break;
            }
        }
        self.variables.truncate(scope);
        self.depth -= 1;
        Ok(flow)
    }

    fn node(&mut self, node: &'t TemplateNode, dot: &TemplateValue<'t>) -> Result<Flow, TemplateError> {
        match node {
            TemplateNode::Text(text) => {
                self.spend(1, 1 + text.len() / 64)?;
                match &mut self.writer {
                    TemplateWriter::Html(html) => html.text(text),
                    TemplateWriter::Text(out) => out.push_str(text),
                }
                self.check_output(1)?;
            }
            TemplateNode::Output(pipeline) => {
                let value = self.pipeline(pipeline, dot, true)?;
                if pipeline.binding.is_none() {
                    self.write(&value, pipeline.line)?;
                }
            }
            TemplateNode::If { condition, then, otherwise } => {
                let scope = self.variables.len();
                let truth = value::is_true(self.pipeline(condition, dot, false)?.as_ref());
                let flow = self.block(if truth { then } else { otherwise }, dot)?;
                self.variables.truncate(scope);
                return Ok(flow);
            }
            TemplateNode::With { value, then, otherwise } => {
                let scope = self.variables.len();
                let inner = self.pipeline(value, dot, false)?;
                let flow = if value::is_true(&inner) { self.block(then, &inner)? } else { self.block(otherwise, dot)? };
                self.variables.truncate(scope);
                return Ok(flow);
            }
            TemplateNode::Range { items, each, otherwise } => return self.range(items, each, otherwise, dot),
            TemplateNode::Call { line, name, argument } => {
                let inner = match argument {
                    Some(pipeline) => self.pipeline(pipeline, dot, false)?,
                    None => Cow::Owned(Value::Null),
                };
                let nodes = self.tree.defined.get(name);
                let nodes = nodes.ok_or_else(|| TemplateError::at(*line, format!("there is no template {name:?}")))?;
                // A called template sees its argument and nothing of its caller
                let outer = std::mem::replace(&mut self.variables, vec![("", inner.clone())]);
                self.block(nodes, &inner)?;
                self.variables = outer;
            }
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn range(
        &mut self,
        items: &'t Pipeline,
        each: &'t [TemplateNode],
        otherwise: &'t [TemplateNode],
        dot: &TemplateValue<'t>,
    ) -> Result<Flow, TemplateError> {
        let scope = self.variables.len();
        let list = self.pipeline_value(items, dot, false)?;
        let entries = self.entries(list, items.line)?;
        if entries.is_empty() {
            let flow = self.block(otherwise, dot)?;
            self.variables.truncate(scope);
            return Ok(flow);
        }
        for (key, item) in entries {
            self.spend(items.line, 1)?;
            if let Some(binding) = &items.binding {
                let mut values = match binding.names.len() {
                    1 => vec![item.clone()],
                    _ => vec![Cow::Owned(key), item.clone()],
                };
                for name in binding.names.iter().rev() {
                    let value = values.pop().unwrap_or(Cow::Owned(Value::Null));
                    self.bind(name, value, binding.declares);
                }
            }
            let flow = self.block(each, &item)?;
            if items.binding.as_ref().is_none_or(|binding| binding.declares) {
                self.variables.truncate(scope);
            }
            if flow == Flow::Break {
                break;
            }
        }
        self.variables.truncate(scope);
        Ok(Flow::Next)
    }

    fn entries(
        &mut self,
        list: TemplateValue<'t>,
        line: usize,
    ) -> Result<Vec<(Value, TemplateValue<'t>)>, TemplateError> {
        fn numbered<'v>(items: impl Iterator<Item = TemplateValue<'v>>) -> Vec<(Value, TemplateValue<'v>)> {
            items.enumerate().map(|(index, item)| (Value::from(index), item)).collect()
        }
        let mut entries: Vec<(Value, TemplateValue<'t>)> = match list {
            Cow::Borrowed(Value::Array(items)) => numbered(items.iter().map(Cow::Borrowed)),
            Cow::Owned(Value::Array(items)) => numbered(items.into_iter().map(Cow::Owned)),
            Cow::Borrowed(Value::Object(fields)) => {
                fields.iter().map(|(name, value)| (Value::from(name.as_str()), Cow::Borrowed(value))).collect()
            }
            Cow::Owned(Value::Object(fields)) => {
                fields.into_iter().map(|(name, value)| (Value::from(name), Cow::Owned(value))).collect()
            }
            other => match other.as_ref() {
                Value::Null => Vec::new(),
                Value::Number(number) => {
                    let count = number.as_i64().unwrap_or(0).max(0);
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    self.spend(line, count)?;
                    numbered((0..count).map(|index| Cow::Owned(Value::from(index))))
                }
                _ => return Err(TemplateError::at(line, "range needs a list")),
            },
        };
        self.spend(line, entries.len())?;
        if entries.first().is_some_and(|(key, _)| key.is_string()) {
            entries.sort_by(|(left, _), (right, _)| left.as_str().cmp(&right.as_str()));
        }
        Ok(entries)
    }

    /// Returns the value of a pipeline; its variables are set.
    fn pipeline(
        &mut self,
        pipeline: &'t Pipeline,
        dot: &TemplateValue<'t>,
        output: bool,
    ) -> Result<TemplateValue<'t>, TemplateError> {
        let value = self.pipeline_value(pipeline, dot, output)?;
        if let Some(binding) = &pipeline.binding {
            for name in &binding.names {
                self.bind(name, value.clone(), binding.declares);
            }
        }
        Ok(value)
    }

    fn bind(&mut self, name: &'t str, value: TemplateValue<'t>, declares: bool) {
        match self.variables.iter_mut().rev().find(|(known, _)| *known == name) {
            Some((_, held)) if !declares => *held = value,
            _ => self.variables.push((name, value)),
        }
    }

    fn pipeline_value(
        &mut self,
        pipeline: &'t Pipeline,
        dot: &TemplateValue<'t>,
        output: bool,
    ) -> Result<TemplateValue<'t>, TemplateError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(TemplateError::at(pipeline.line, "the template nests too deeply"));
        }
        let mut value: Option<TemplateValue<'t>> = None;
        let last = pipeline.commands.len() - 1;
        for (index, command) in pipeline.commands.iter().enumerate() {
            self.spend(pipeline.line, 1)?;
            value = Some(match command {
                TemplateCommand::Value(operand) => self.operand(operand, dot, pipeline.line)?,
                // The place decides on the escaping; a template that asks for it as well must not
                // get it twice
                TemplateCommand::Call(function, arguments)
                    if output && index == last && self.writer.escapes_like(*function) =>
                {
                    match (arguments.as_slice(), value) {
                        ([], Some(piped)) => piped,
                        ([operand], None) => self.operand(operand, dot, pipeline.line)?,
                        (_, value) => self.call(Function::Print, arguments, value, dot, pipeline.line)?,
                    }
                }
                TemplateCommand::Call(function, arguments) => {
                    self.call(*function, arguments, value, dot, pipeline.line)?
                }
            });
        }
        self.depth -= 1;
        Ok(value.unwrap_or(Cow::Owned(Value::Null)))
    }

    fn call(
        &mut self,
        function: Function,
        operands: &'t [TemplateOperand],
        piped: Option<TemplateValue<'t>>,
        dot: &TemplateValue<'t>,
        line: usize,
    ) -> Result<TemplateValue<'t>, TemplateError> {
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            let value = self.operand(operand, dot, line)?;
            let truth = value::is_true(&value);
            let decided = (function == Function::And && !truth) || (function == Function::Or && truth);
            if decided {
                return Ok(value);
            }
            arguments.push(value);
        }
        arguments.extend(piped);
        let size: usize = arguments.iter().map(|argument| weight(argument)).sum();
        self.spend(line, 1 + size / 16)?;
        match function.apply(&arguments, LARGEST_OUTPUT) {
            Ok(value) => {
                self.spend(line, weight(&value) / 16)?;
                Ok(Cow::Owned(value))
            }
            Err(reason) => Err(TemplateError::at(line, format!("{}: {reason}", function.name()))),
        }
    }

    fn operand(
        &mut self,
        operand: &'t TemplateOperand,
        dot: &TemplateValue<'t>,
        line: usize,
    ) -> Result<TemplateValue<'t>, TemplateError> {
        self.spend(line, 1)?;
        Ok(match operand {
            TemplateOperand::Dot => self.copy(dot, &[], line)?,
            TemplateOperand::Constant(value) => Cow::Borrowed(value),
            TemplateOperand::Path(path) => self.copy(dot, path, line)?,
            TemplateOperand::Variable(name, path) => {
                let held = self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, held)| held.clone());
                match held {
                    Some(held) => self.copy(&held, path, line)?,
                    None => Cow::Owned(Value::Null),
                }
            }
            TemplateOperand::Function(function) => self.call(*function, &[], None, dot, line)?,
            TemplateOperand::Nested(pipeline, path) => {
                let scope = self.variables.len();
                let value = self.pipeline(pipeline, dot, false)?;
                self.variables.truncate(scope);
                self.copy(&value, path, line)?
            }
        })
    }

    /// Returns the value at a path: borrowed from the data where that is possible, else a copy,
    /// which counts as work.
    fn copy(
        &mut self,
        held: &TemplateValue<'t>,
        path: &[String],
        line: usize,
    ) -> Result<TemplateValue<'t>, TemplateError> {
        match held {
            Cow::Borrowed(value) => Ok(Cow::Borrowed(value::field(value, path))),
            Cow::Owned(value) => {
                let value = value::field(value, path);
                self.spend(line, weight(value) / 16)?;
                Ok(Cow::Owned(value.clone()))
            }
        }
    }

    fn write(&mut self, value: &Value, line: usize) -> Result<(), TemplateError> {
        let mut printed = String::new();
        if !value.is_null() {
            value::print(value, &mut printed, LARGEST_OUTPUT);
        }
        self.spend(line, 1 + printed.len() / 16)?;
        match &mut self.writer {
            TemplateWriter::Html(html) => {
                html.value(value, &printed).map_err(|reason| TemplateError::at(line, reason))?
            }
            TemplateWriter::Text(out) => out.push_str(&printed),
        }
        self.check_output(line)
    }

    fn check_output(&self, line: usize) -> Result<(), TemplateError> {
        if self.writer.length() > LARGEST_OUTPUT {
            return Err(TemplateError::at(line, "the text becomes too long"));
        }
        Ok(())
    }

    fn spend(&mut self, line: usize, work: usize) -> Result<(), TemplateError> {
        self.work = self.work.saturating_add(work);
        if self.work > MOST_WORK {
            return Err(TemplateError::at(line, "the template does too much work"));
        }
        Ok(())
    }
}

/// Returns roughly the bytes that copying or printing a value moves.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 16 + weight(item)).sum(),
        Value::Object(fields) => fields.iter().map(|(name, item)| 32 + name.len() + weight(item)).sum(),
        _ => 8,
    }
}
