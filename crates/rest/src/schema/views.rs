//! The columns that views show.
//!
//! PostgreSQL stores a view as a tree of nodes, in text. Every item of a select list names the
//! column that it is read from, if it is one. Only those items of the outermost query are read
//! here, in one pass and without recursion. A tree that cannot be parsed shows no columns.

use std::collections::HashMap;

/// A column: its relation's oid and its number.
pub(crate) type ColumnId = (u32, i16);

/// The columns that each view shows, by the view's oid: number in the view, and the underlying
/// column.
pub(crate) type ViewColumns = HashMap<u32, Vec<(i16, ColumnId)>>;

/// The limit of nested views.
const MAX_DEPTH: usize = 128;

/// Returns the columns that the outermost select list of a rewrite rule shows: number in the view,
/// and origin.
pub(crate) fn shown_columns(rule: &str) -> Vec<(i16, ColumnId)> {
    let mut tokens = NodeTokens { rest: rule };
    let mut depth = 0_usize;
    // `({QUERY … :targetList (…`: the fields of the query are two levels deep
    loop {
        match tokens.next() {
            Some("(" | "{") => depth += 1,
            Some(")" | "}") => depth = depth.saturating_sub(1),
            Some(":targetList") if depth == 2 => break,
            Some(_) => {}
            None => return Vec::new(),
        }
    }
    if tokens.next() != Some("(") {
        return Vec::new();
    }
    let mut shown = Vec::new();
    let mut entry = TargetEntry::default();
    // Within the list: 1 in an item, more in its expression
    let mut depth = 0_usize;
    while let Some(token) = tokens.next() {
        match token {
            "(" | "{" => depth += 1,
            ")" if depth == 0 => break,
            ")" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    shown.extend(std::mem::take(&mut entry).column());
                }
            }
            ":resno" if depth == 1 => entry.number = tokens.number(),
            ":resorigtbl" if depth == 1 => entry.relation = tokens.number(),
            ":resorigcol" if depth == 1 => entry.column = tokens.number(),
            ":resjunk" if depth == 1 => entry.is_junk = tokens.next() != Some("false"),
            _ => {}
        }
    }
    shown
}

/// The properties of an item of a select list.
#[derive(Default)]
struct TargetEntry {
    number: Option<i16>,
    relation: Option<u32>,
    column: Option<i16>,
    is_junk: bool,
}

impl TargetEntry {
    fn column(self) -> Option<(i16, ColumnId)> {
        let Self { number, relation, column, is_junk } = self;
        // A junk item is computed for ORDER BY, for example, and not shown
        if is_junk {
            return None;
        }
        Some((number?, (relation.filter(|oid| *oid != 0)?, column.filter(|number| *number > 0)?)))
    }
}

/// The tokens of a node tree: brackets, and words between white space. A backslash escapes the next
/// character.
struct NodeTokens<'a> {
    rest: &'a str,
}

impl<'a> NodeTokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\t']);
        let bytes = self.rest.as_bytes();
        let mut end = match bytes.first()? {
            b'(' | b')' | b'{' | b'}' => 1,
            _ => 0,
        };
        if end == 0 {
            while let Some(byte) = bytes.get(end) {
                match byte {
                    b'\\' => end += 2,
                    b' ' | b'\n' | b'\t' | b'(' | b')' | b'{' | b'}' => break,
                    _ => end += 1,
                }
            }
        }
        // A multi-byte character may follow a backslash, or nothing
        end = end.min(self.rest.len());
        while !self.rest.is_char_boundary(end) {
            end += 1;
        }
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(token)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.next()?.parse().ok()
    }
}

/// Follows each column of a view through the views below it to a relation that is no view.
///
/// `shown` has the columns of each known view. A column of any other relation stays as it is; a
/// column in a cycle is left out.
pub(crate) fn base_columns(shown: &ViewColumns) -> ViewColumns {
    let direct: HashMap<ColumnId, ColumnId> = shown
        .iter()
        .flat_map(|(view, columns)| columns.iter().map(move |(number, from)| ((*view, *number), *from)))
        .collect();
    let base = |mut column: ColumnId| {
        for _ in 0..MAX_DEPTH {
            match direct.get(&column) {
                Some(below) => column = *below,
                None => return (!shown.contains_key(&column.0)).then_some(column),
            }
        }
        None
    };
    shown
        .iter()
        .map(|(view, columns)| {
            (*view, columns.iter().filter_map(|(number, from)| Some((*number, base(*from)?))).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: &str = r#"({QUERY :commandType 1 :utilityStmt <> :cteList ({COMMONTABLEEXPR :ctename c :ctequery {QUERY
        :targetList ({TARGETENTRY :expr {VAR :varno 9} :resno 1 :resname x :resorigtbl 99 :resorigcol 9 :resjunk false})}})
        :rtable ({RANGETBLENTRY :eref {ALIAS :aliasname "a\ \)b" :colnames ("id" "\{\"x")}})
        :targetList (
          {TARGETENTRY :expr {VAR :varno 1 :location 7} :resno 1 :resname i\)d\ :resno\ 7 :ressortgroupref 0 :resorigtbl 500 :resorigcol 3 :resjunk false}
          {TARGETENTRY :expr {SUBLINK :subselect {QUERY :targetList ({TARGETENTRY :resno 4 :resorigtbl 8 :resorigcol 8 :resjunk false})}} :resno 2 :resname :targetList :resorigtbl 0 :resorigcol 0 :resjunk false}
          {TARGETENTRY :expr {CONST :constvalue 4 [ 1 0 0 0 ]} :resno 3 :resname <> :resorigtbl 500 :resorigcol 4 :resjunk true}
          {TARGETENTRY :expr {VAR} :resno 4 :resname ü\ü :resorigtbl 501 :resorigcol 1 :resjunk false}
        ) :returningList ({TARGETENTRY :resno 1 :resorigtbl 7 :resorigcol 7 :resjunk false}) :groupClause <>})"#;

    #[test]
    fn only_plain_columns_of_the_outermost_list_are_read() {
        assert_eq!(shown_columns(RULE), [(1, (500, 3)), (4, (501, 1))]);
    }

    #[test]
    fn a_rule_without_a_select_shows_no_columns() {
        for rule in
            ["", "(", "<>", "({QUERY :targetList <>})", "({QUERY :targetList", r"({QUERY :targetList (\", "({})"]
        {
            assert_eq!(shown_columns(rule), [], "{rule}");
        }
    }

    #[test]
    fn columns_are_followed_through_views_and_cycles_end() {
        let shown = HashMap::from([
            (10, vec![(1, (1, 1)), (2, (1, 1)), (3, (2, 5))]),
            (11, vec![(1, (10, 2)), (2, (10, 4)), (3, (10, 3))]),
            (12, vec![(1, (13, 1))]),
            (13, vec![(1, (12, 1))]),
        ]);
        let base = base_columns(&shown);
        assert_eq!(base[&10], [(1, (1, 1)), (2, (1, 1)), (3, (2, 5))]);
        // The second column of view 11 refers to an expression of view 10
        assert_eq!(base[&11], [(1, (1, 1)), (3, (2, 5))]);
        assert_eq!(base[&12], []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in r"[(){}\\: a-zü0-9\n]{0,200}", cut in 0_usize..2000) {
            shown_columns(&text);
            let cut = (0..=cut.min(RULE.len())).rev().find(|at| RULE.is_char_boundary(*at)).unwrap_or(0);
            shown_columns(&RULE[..cut]);
            shown_columns(&format!("({{QUERY :targetList ({{{text}"));
        }
    }
}
