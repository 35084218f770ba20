//! Builds the tree of a template.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    TemplateError,
    functions::Function,
    lexer::{self, TemplatePiece, TemplateToken, TemplateTokenKind},
};

/// The greatest depth of nested blocks and parentheses.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateNode {
    Text(String),
    Output(Pipeline),
    If { condition: Pipeline, then: Vec<Self>, otherwise: Vec<Self> },
    With { value: Pipeline, then: Vec<Self>, otherwise: Vec<Self> },
    Range { items: Pipeline, each: Vec<Self>, otherwise: Vec<Self> },
    Call { line: usize, name: String, argument: Option<Pipeline> },
    Break,
    Continue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pipeline {
    pub line: usize,
    pub binding: Option<Binding>,
    pub commands: Vec<TemplateCommand>,
}

/// The variables that a pipeline's value goes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Binding {
    pub names: Vec<String>,
    /// `:=` makes new variables, `=` changes existing ones.
    pub declares: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateCommand {
    Value(TemplateOperand),
    Call(Function, Vec<TemplateOperand>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateOperand {
    Dot,
    Constant(Value),
    Path(Vec<String>),
    Variable(String, Vec<String>),
    Function(Function),
    Nested(Box<Pipeline>, Vec<String>),
}

/// The main template and the ones that it defines.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Tree {
    pub nodes: Vec<TemplateNode>,
    pub defined: BTreeMap<String, Vec<TemplateNode>>,
}

pub(super) fn parse(source: &str) -> Result<Tree, TemplateError> {
    let mut parser = TemplateParser {
        pieces: lexer::split(source)?.into_iter(),
        defined: BTreeMap::new(),
        variables: vec![String::new()],
        depth: 0,
        loops: 0,
        line: 1,
    };
    let (nodes, end) = parser.block()?;
    if let Some(end) = end {
        return Err(TemplateError::at(end.line, format!("{{{{{}}}}} without a beginning", end.word)));
    }
    let tree = Tree { nodes, defined: parser.defined };
    check_calls(&tree.nodes, &tree)?;
    tree.defined.values().try_for_each(|nodes| check_calls(nodes, &tree))?;
    Ok(tree)
}

fn check_calls(nodes: &[TemplateNode], tree: &Tree) -> Result<(), TemplateError> {
    for node in nodes {
        match node {
            TemplateNode::Call { line, name, .. } if !tree.defined.contains_key(name) => {
                return Err(TemplateError::at(*line, format!("there is no template {name:?}")));
            }
            TemplateNode::If { then, otherwise, .. } | TemplateNode::With { then, otherwise, .. } => {
                check_calls(then, tree)?;
                check_calls(otherwise, tree)?;
            }
            TemplateNode::Range { each, otherwise, .. } => {
                check_calls(each, tree)?;
                check_calls(otherwise, tree)?;
            }
            _ => {}
        }
    }
    Ok(())
}

struct TemplateParser {
    pieces: std::vec::IntoIter<TemplatePiece>,
    defined: BTreeMap<String, Vec<TemplateNode>>,
    /// Variables in sight, without the `$`; the empty name is `$` itself.
    variables: Vec<String>,
    depth: usize,
    loops: usize,
    line: usize,
}

/// The end of a block: `end`, or `else` with the text behind it.
struct BlockEnd {
    line: usize,
    word: &'static str,
    tokens: Tokens,
}

impl TemplateParser {
    fn block(&mut self) -> Result<(Vec<TemplateNode>, Option<BlockEnd>), TemplateError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(TemplateError::at(self.line, "blocks nest too deeply"));
        }
        let mut nodes = Vec::new();
        let mut end = None;
        while let Some(piece) = self.pieces.next() {
            match piece {
                TemplatePiece::Text(text) => nodes.push(TemplateNode::Text(text)),
                TemplatePiece::Action { line, tokens } => {
                    self.line = line;
                    let mut tokens = Tokens { line, tokens: tokens.into_iter().peekable() };
                    let word = match tokens.peek() {
                        Some(TemplateTokenKind::Word(word)) => word.clone(),
                        Some(_) => String::new(),
                        None => return Err(TemplateError::at(line, "an action is empty")),
                    };
                    if let Some(word) = ["end", "else"].into_iter().find(|ending| *ending == word) {
                        tokens.next();
                        end = Some(BlockEnd { line, word, tokens });
                        break;
                    }
                    if let Some(node) = self.action(&word, tokens)? {
                        nodes.push(node);
                    }
                }
            }
        }
        self.depth -= 1;
        Ok((nodes, end))
    }

    fn action(&mut self, word: &str, mut tokens: Tokens) -> Result<Option<TemplateNode>, TemplateError> {
        match word {
            "if" | "with" | "range" => {
                tokens.next();
                return self.control(word, tokens).map(Some);
            }
            "break" | "continue" => {
                tokens.next();
                tokens.finish()?;
                if self.loops == 0 {
                    return Err(tokens.error(format!("{word} outside of a range")));
                }
                return Ok(Some(if word == "break" { TemplateNode::Break } else { TemplateNode::Continue }));
            }
            "template" => {
                tokens.next();
                return self.call(tokens).map(Some);
            }
            "define" => {
                tokens.next();
                let name = tokens.text()?;
                tokens.finish()?;
                self.define(name, &tokens)?;
                return Ok(None);
            }
            "block" => {
                tokens.next();
                let name = tokens.text()?;
                let argument = self.pipeline(&mut tokens)?;
                tokens.finish()?;
                let line = tokens.line;
                self.define(name.clone(), &tokens)?;
                return Ok(Some(TemplateNode::Call { line, name, argument: Some(argument) }));
            }
            _ => {}
        }
        let pipeline = self.pipeline(&mut tokens)?;
        tokens.finish()?;
        if pipeline.binding.as_ref().is_some_and(|binding| binding.names.len() > 1) {
            return Err(tokens.error("only range gives two values"));
        }
        Ok(Some(TemplateNode::Output(pipeline)))
    }

    fn call(&mut self, mut tokens: Tokens) -> Result<TemplateNode, TemplateError> {
        let name = tokens.text()?;
        let argument = if tokens.peek().is_some() { Some(self.pipeline(&mut tokens)?) } else { None };
        tokens.finish()?;
        Ok(TemplateNode::Call { line: tokens.line, name, argument })
    }

    fn define(&mut self, name: String, tokens: &Tokens) -> Result<(), TemplateError> {
        let outer = std::mem::replace(&mut self.variables, vec![String::new()]);
        let loops = std::mem::take(&mut self.loops);
        let (nodes, end) = self.block()?;
        (self.variables, self.loops) = (outer, loops);
        self.ended(end, tokens.line, "define")?;
        self.defined.insert(name, nodes);
        Ok(())
    }

    fn control(&mut self, word: &str, mut tokens: Tokens) -> Result<TemplateNode, TemplateError> {
        let scope = self.variables.len();
        let pipeline = self.pipeline(&mut tokens)?;
        tokens.finish()?;
        let line = tokens.line;
        let two_values = pipeline.binding.as_ref().is_some_and(|binding| binding.names.len() > 1);
        if two_values && word != "range" {
            return Err(tokens.error("only range gives two values"));
        }
        self.loops += usize::from(word == "range");
        let inner = self.variables.len();
        let (then, end) = self.block()?;
        self.variables.truncate(inner);
        self.loops -= usize::from(word == "range");

        let otherwise = match end {
            Some(mut end) if end.word == "else" => match end.tokens.peek() {
                None => {
                    let (nodes, end) = self.block()?;
                    self.ended(end, line, word)?;
                    nodes
                }
                // `else if` and `else with` share the end of what they continue
                Some(TemplateTokenKind::Word(again)) if (again == "if" || again == "with") && word != "range" => {
                    let again = again.clone();
                    end.tokens.next();
                    self.depth += 1;
                    if self.depth > DEEPEST {
                        return Err(TemplateError::at(line, "blocks nest too deeply"));
                    }
                    let node = self.control(&again, end.tokens)?;
                    self.depth -= 1;
                    vec![node]
                }
                Some(_) => return Err(end.tokens.error("unexpected words after else")),
            },
            end => {
                self.ended(end, line, word)?;
                Vec::new()
            }
        };
        self.variables.truncate(scope);
        Ok(match word {
            "if" => TemplateNode::If { condition: pipeline, then, otherwise },
            "with" => TemplateNode::With { value: pipeline, then, otherwise },
            _ => TemplateNode::Range { items: pipeline, each: then, otherwise },
        })
    }

    fn ended(&self, end: Option<BlockEnd>, line: usize, word: &str) -> Result<(), TemplateError> {
        match end {
            Some(mut end) if end.word == "end" => end.tokens.finish(),
            Some(end) => Err(TemplateError::at(end.line, "a second {{else}}")),
            None => Err(TemplateError::at(line, format!("{{{{{word}}}}} is not closed with {{{{end}}}}"))),
        }
    }

    fn pipeline(&mut self, tokens: &mut Tokens) -> Result<Pipeline, TemplateError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(tokens.error("parentheses nest too deeply"));
        }
        let binding = self.binding(tokens)?;
        let mut commands = Vec::new();
        loop {
            let command = self.command(tokens)?;
            if !commands.is_empty() && matches!(command, TemplateCommand::Value(_)) {
                return Err(tokens.error("what follows a | must be a function"));
            }
            commands.push(command);
            if tokens.peek() != Some(&TemplateTokenKind::Pipe) {
                break;
            }
            tokens.next();
        }
        // A variable is in sight behind its own declaration, not in it
        if let Some(binding) = &binding {
            for name in &binding.names {
                if binding.declares {
                    self.variables.push(name.clone());
                } else if !self.variables.contains(name) {
                    return Err(tokens.error(format!("the variable ${name} does not exist")));
                }
            }
        }
        self.depth -= 1;
        Ok(Pipeline { line: tokens.line, binding, commands })
    }

    fn binding(&mut self, tokens: &mut Tokens) -> Result<Option<Binding>, TemplateError> {
        let Some(TemplateTokenKind::Variable(first)) = tokens.peek() else { return Ok(None) };
        let mut names = vec![first.clone()];
        let mut ahead = tokens.tokens.clone();
        ahead.next();
        let mut next = ahead.next().map(|token| token.kind);
        if next == Some(TemplateTokenKind::Comma) {
            let Some(TemplateToken { kind: TemplateTokenKind::Variable(second), .. }) = ahead.next() else {
                return Err(tokens.error("a variable must follow the comma"));
            };
            names.push(second);
            next = ahead.next().map(|token| token.kind);
        }
        let declares = match next {
            Some(TemplateTokenKind::Declare) => true,
            Some(TemplateTokenKind::Assign) => false,
            _ if names.len() > 1 => return Err(tokens.error("variables must be followed by :=")),
            _ => return Ok(None),
        };
        if names.iter().any(String::is_empty) {
            return Err(tokens.error("a variable needs a name"));
        }
        tokens.tokens = ahead;
        Ok(Some(Binding { names, declares }))
    }

    fn command(&mut self, tokens: &mut Tokens) -> Result<TemplateCommand, TemplateError> {
        let first = self.operand(tokens)?;
        let mut arguments = Vec::new();
        while !matches!(tokens.peek(), None | Some(TemplateTokenKind::Pipe | TemplateTokenKind::Close)) {
            arguments.push(self.operand(tokens)?);
        }
        match first {
            TemplateOperand::Function(function) => Ok(TemplateCommand::Call(function, arguments)),
            value if arguments.is_empty() => Ok(TemplateCommand::Value(value)),
            _ => Err(tokens.error("only a function takes arguments")),
        }
    }

    fn operand(&mut self, tokens: &mut Tokens) -> Result<TemplateOperand, TemplateError> {
        let token = tokens.next().ok_or_else(|| tokens.error("a value is missing"))?;
        Ok(match token {
            TemplateTokenKind::Dot => TemplateOperand::Dot,
            TemplateTokenKind::Text(text) => TemplateOperand::Constant(Value::String(text)),
            TemplateTokenKind::Number(number) => TemplateOperand::Constant(Value::Number(number)),
            TemplateTokenKind::Field(name) => {
                let mut path = vec![name];
                path.extend(tokens.fields());
                TemplateOperand::Path(path)
            }
            TemplateTokenKind::Variable(name) => {
                if !self.variables.contains(&name) {
                    return Err(tokens.error(format!("the variable ${name} does not exist")));
                }
                TemplateOperand::Variable(name, tokens.fields())
            }
            TemplateTokenKind::Open => {
                let inner = self.pipeline(tokens)?;
                if tokens.next() != Some(TemplateTokenKind::Close) {
                    return Err(tokens.error("a parenthesis is not closed"));
                }
                TemplateOperand::Nested(Box::new(inner), tokens.fields())
            }
            TemplateTokenKind::Word(word) => match word.as_str() {
                "true" => TemplateOperand::Constant(Value::Bool(true)),
                "false" => TemplateOperand::Constant(Value::Bool(false)),
                "nil" => TemplateOperand::Constant(Value::Null),
                name => TemplateOperand::Function(
                    Function::named(name).ok_or_else(|| tokens.error(format!("there is no function {name:?}")))?,
                ),
            },
            other => return Err(tokens.error(format!("unexpected {other:?}"))),
        })
    }
}

struct Tokens {
    line: usize,
    tokens: std::iter::Peekable<std::vec::IntoIter<TemplateToken>>,
}

impl Tokens {
    fn next(&mut self) -> Option<TemplateTokenKind> {
        self.tokens.next().map(|token| token.kind)
    }

    fn peek(&mut self) -> Option<&TemplateTokenKind> {
        self.tokens.peek().map(|token| &token.kind)
    }

    /// Returns the fields that hang on the operand before, as in `$user.name`.
    fn fields(&mut self) -> Vec<String> {
        let mut fields = Vec::new();
        while let Some(TemplateToken { kind: TemplateTokenKind::Field(name), spaced: false }) = self.tokens.peek() {
            fields.push(name.clone());
            self.tokens.next();
        }
        fields
    }

    fn text(&mut self) -> Result<String, TemplateError> {
        match self.next() {
            Some(TemplateTokenKind::Text(text)) => Ok(text),
            _ => Err(self.error("the name of a template must be a quoted text")),
        }
    }

    fn finish(&mut self) -> Result<(), TemplateError> {
        match self.next() {
            None => Ok(()),
            Some(token) => Err(self.error(format!("unexpected {token:?}"))),
        }
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::at(self.line, message)
    }
}
