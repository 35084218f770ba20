//! The query string as types.
//!
//! Parsing knows no schema. It takes one pass over the text, without regular expressions, and
//! without going back further than one item: the time is linear in the length of any text. Nesting,
//! length and number of items are limited.
//!
//! ```ebnf
//! query        = [ pair , { ( "&" | ";" ) , pair } ]          (then "+" is a space, "%XX" a byte; a pair without "=" is dropped)
//! pair         = key , "=" , value                            (the key decides how the value is read)
//!
//! ident-char   = any Unicode letter | "0".."9" | "_" | " " | "$"
//! ident        = ident-char , { ident-char }                  (trimmed)
//! quoted       = '"' , { any except '"' and "\" | "\" any } , '"'
//! name         = quoted | ident , { "-" , ident }             (a "-" before ">" ends the name)
//!
//! json-path    = { ( "->>" | "->" ) , ( index | key ) }
//! index        = [ "-" ] , digit , { digit }                  (only before "->" | "::" | "." | "," | end)
//! key          = quoted | key-part , { "-" , key-part }
//! key-part     = one or more of any char except "(" "-" ":" "." "," ">" ")"    (trimmed)
//! field        = name , [ json-path ]
//!
//! select       = [ item , { "," , item } ]
//! item         = spread | relation | column
//! spread       = "..." , name , embed-params , "(" , select , ")"
//! relation     = [ name , ":" ] , name , embed-params , "(" , select , ")"
//! embed-params = [ embed-param ] , [ embed-param ]
//! embed-param  = "!" , ( "left" | "inner" | name )
//! column       = "*"
//!              | [ name , ":" ] , "count()" , [ "::" , ident ]
//!              | [ name , ":" ] , field , [ "::" , ident ] , [ "." , agg , "()" , [ "::" , ident ] ]
//! agg          = "sum" | "avg" | "count" | "max" | "min"
//!
//! filter-key   = { name , "." } , field
//! filter-value = [ "not." ] , operation
//! operation    = "in." , list | "is." , is-value | "isdistinct." , value
//!              | ( "fts" | "plfts" | "phfts" | "wfts" ) , [ "(" , ident , ")" ] , "." , value
//!              | ( "neq" | "cs" | "cd" | "ov" | "sl" | "sr" | "nxr" | "nxl" | "adj" ) , "." , value
//!              | quant , [ "(" , ( "any" | "all" ) , ")" ] , "." , value
//! quant        = "eq" | "gte" | "gt" | "lte" | "lt" | "like" | "ilike" | "match" | "imatch"
//! is-value     = "null" | "not_null" | "true" | "false" | "unknown"            (in any letter case)
//! list         = "(" , element , { "," , element } , ")"
//! element      = quoted (only before "," or ")") | { any except "," ")" }
//! value        = the whole rest, as it stands
//!
//! logic-key    = { name , "." } , ( "and" | "or" )            (a "not" among the names negates)
//! logic-value  = "(" , tree , { "," , tree } , ")"
//! tree         = field , "." , filter-value                   (with logic values)
//!              | [ "not." ] , ( "and" | "or" ) , "(" , tree , { "," , tree } , ")"
//! value        = quoted (only before "," or ")") | "{" , { any except "{" "}" } , "}" | { any except "," ")" }
//!
//! order-key    = { name , "." } , "order"
//! order-value  = term , { "," , term }
//! term         = ( name , "(" , field , ")" | field ) , [ ".asc" | ".desc" ] , [ ".nullsfirst" | ".nullslast" ]
//! range-key    = { name , "." } , ( "limit" | "offset" )      (value: an integer; anything else is no limit)
//! columns      = name , { "," , name }                        (on_conflict too)
//! ```
//!
//! Spaces and tabs may stand around the items of lists, around fields, and around the parentheses
//! of `list` and of logic. Text after a complete last item is ignored, except in `order`.

mod cursor;
mod filter;
mod lex;
mod logic;
mod name;
mod order;
mod parse;
#[cfg(test)]
mod print;
mod select;
#[cfg(test)]
mod tests;
mod types;

pub use lex::canonical;
pub use parse::{QueryTarget, parse};
pub use types::{
    Aggregate, Arrow, AtLevel, Direction, EmbedPath, Field, Filter, FilterOperation, Fts, IsValue, Join, JsonStep,
    Logic, LogicTree, Nulls, Operand, OrderTerm, QuantOperator, Quantifier, RequestQuery, RowRange, SelectColumn,
    SelectItem, SelectRelation, SimpleOperator,
};

pub(crate) use lex::decode;
