//! `select`.

use super::cursor::{Cursor, Parsed};
use super::name::{ident, json_path, name, named};
use super::types::{Aggregate, Field, Join, SelectColumn, SelectItem, SelectRelation};

/// Parses the whole `select` parameter. Text after the last item is ignored, even if there is no
/// item at all.
pub(super) fn select(cursor: &mut Cursor<'_>) -> Parsed<Vec<SelectItem>> {
    cursor.spaces();
    let begin = cursor.position();
    match cursor.list(item) {
        Err(_) if cursor.failed_at_or_before(begin) => Ok(Vec::new()),
        read => read,
    }
}

fn item(cursor: &mut Cursor<'_>) -> Parsed<SelectItem> {
    if cursor.take("...") {
        let name = name(cursor)?;
        return relation(cursor, true, None, name);
    }
    if cursor.take("*") {
        return Ok(SelectItem::Star);
    }
    let mut target = named(cursor)?;
    let mut alias = None;
    if cursor.is_next(":") && !cursor.is_next("::") {
        cursor.skip(1);
        cursor.spaces();
        alias = Some(std::mem::replace(&mut target, named(cursor)?).text);
    }
    // A relation of this name has to be quoted
    let is_count = target.text == "count" && !target.quoted;
    if is_count && cursor.take("()") {
        return Ok(SelectItem::CountRows { alias, cast: cast(cursor)? });
    }
    if !is_count && matches!(cursor.peek(), Some('(' | '!')) {
        return relation(cursor, false, alias, target.text);
    }
    let field = Field { name: target.text, json_path: json_path(cursor)? };
    let cast_before = cast(cursor)?;
    let aggregate = aggregate(cursor);
    // Without an aggregate, a second type may follow and has no effect
    let aggregate_cast = cast(cursor)?.filter(|_| aggregate.is_some());
    Ok(SelectItem::Column(SelectColumn { alias, field, cast: cast_before, aggregate, aggregate_cast }))
}

fn relation(cursor: &mut Cursor<'_>, spread: bool, alias: Option<String>, name: String) -> Parsed<SelectItem> {
    let (mut hint, mut join) = (None, None);
    for _ in 0..2 {
        if !cursor.take("!") {
            break;
        }
        // A hint that begins with one of these words has to be quoted
        if cursor.take("left") {
            join = join.or(Some(Join::Left));
        } else if cursor.take("inner") {
            join = join.or(Some(Join::Inner));
        } else {
            let given = super::name::name(cursor)?;
            hint = hint.or(Some(given));
        }
    }
    cursor.expect("(", "\"(\"")?;
    cursor.spaces();
    let select = if cursor.is_next(")") { Vec::new() } else { cursor.nest(|cursor| cursor.list(item))? };
    cursor.expect(")", "\")\"")?;
    Ok(SelectItem::Relation(SelectRelation { spread, alias, name, hint, join, select }))
}

fn cast(cursor: &mut Cursor<'_>) -> Parsed<Option<String>> {
    if cursor.take("::") { ident(cursor, "identifier").map(Some) } else { Ok(None) }
}

fn aggregate(cursor: &mut Cursor<'_>) -> Option<Aggregate> {
    [
        (".sum()", Aggregate::Sum),
        (".avg()", Aggregate::Avg),
        (".count()", Aggregate::Count),
        (".max()", Aggregate::Max),
        (".min()", Aggregate::Min),
    ]
    .into_iter()
    .find_map(|(text, aggregate)| cursor.take(text).then_some(aggregate))
}
