//! A schema cache without a database, for tests of pure stages: the cinema of
//! `tests/it/schema.sql`, without its special cases.

use std::collections::HashMap;
use std::sync::Arc;

use super::model::{
    Column, MediaHandler, QualifiedName, Relation, RelationKind, Representation, ReturnType, Routine, RoutineParameter,
    SchemaCache, Volatility,
};
use super::relationships::{ComputedRelationship, ExposedKey, ForeignKey, RelationshipSources, derive};

/// Kind, name (in `public` by default), primary key, columns.
const RELATIONS: &str = "
table directors (id): id integer not null; first_name text not null; last_name text not null; born date
table films (id): id integer not null default nextval('public.films_id_seq'); title text not null; year integer; rating numeric(3,1); director_id integer; released timestamp with time zone; language character varying(12) default 'english'::character varying; mood public.mood; tags text[] not null default '{}'::text[]; meta jsonb
table actors (id): id integer not null; first_name text not null; last_name text not null
table roles (actor_id, film_id): film_id integer not null; actor_id integer not null; character text
table competitions (id): id integer not null; name text not null; year integer
table nominations (category, competition_id, film_id): film_id integer not null; competition_id integer not null; category text not null; rank integer
table screenings (id): id bigint not null; film_id integer not null; hall text not null; starts timestamp with time zone not null default '2024-01-01 20:00:00+00'::timestamp with time zone; seats integer not null default 100
table director_profiles (director_id): director_id integer not null; biography text
table technical_details (id): id integer not null; film_id integer; runtime interval; camera text
table posters (id): id integer not null; film_id integer; image bytea; url text
table addresses (id): id integer not null; street text; city text
table orders (id): id integer not null; name text; billing_address_id integer; shipping_address_id integer
table people (id): id integer not null; name text not null; manager_id integer
table friendships (one, other): one integer not null; other integer not null; since date
table presidents (id): id integer not null; name text; successor_id integer
table warehouses (code, region): region text not null; code integer not null; name text
table stocks (id): id integer not null; warehouse_code integer; warehouse_region text; article text; quantity integer not null default 0
table documents (id): id integer not null; data jsonb; raw json; body text
table events (id): id integer not null; name text not null; during tstzrange; seats int4range; day date; at timestamp without time zone; keywords text[]; scores integer[]; place public.point_of_sale; search tsvector; title_upper text
table articles (id): id bigint not null; sku uuid not null default '00000000-0000-4000-8000-000000000001'::uuid; name public.short_text; price public.price default 9.99; active boolean not null default true
table tickets (number): number integer not null default nextval('public.ticket_numbers'::regclass); holder text not null default 'nobody'::text; sold_at timestamp with time zone not null default '2024-05-05 05:05:05+00'::timestamp with time zone
table guest_book (): entry text; guest text
table items (id): id bigint not null default nextval('public.items_id_seq'::regclass)
table paints (id): id integer not null; name text; color public.color; undercoat public.color default 255
table reviews (id): id integer not null; film_id integer; owner uuid not null default auth.uid(); stars integer; body text; public boolean not null default true
table designers (id): id integer not null; name text
table video_games (id): id integer not null; name text; designer_id integer
table \"Odd Table\" (Id): Id integer not null; first name text; dot.ted text; quo\"ted text; order integer
table \"odd child\" (id): id integer not null; Odd Id integer
view film_list (id): id integer; title text; year integer; director_id integer
view director_list (id): id integer; name text
view role_list (actor_id, film_id): film_id integer; actor_id integer; character text
view double_films (id): id integer; title text; maker integer; author integer
view showings (id): id integer; hall text
view anybody (): first_name text; last_name text; id integer
matview film_stats (director_id): director_id integer; films bigint; latest integer
table archive.films (id): id integer not null; title text; director_id integer
";

/// Names of columns with a space, which the notation above cannot express.
const SPACED: [&str; 2] = ["first name", "Odd Id"];

/// Constraint, the table that has it and its columns, the referenced table and its columns.
const FOREIGN_KEYS: &str = r#"
films_director_id_fkey: films(director_id) -> directors(id)
roles_film_id_fkey: roles(film_id) -> films(id)
roles_actor_id_fkey: roles(actor_id) -> actors(id)
nominations_film_id_fkey: nominations(film_id) -> films(id)
nominations_competition_id_fkey: nominations(competition_id) -> competitions(id)
screenings_film_id_fkey: screenings(film_id) -> films(id)
unique director_profiles_director_id_fkey: director_profiles(director_id) -> directors(id)
unique technical_details_film_id_fkey: technical_details(film_id) -> films(id)
posters_film_id_fkey: posters(film_id) -> films(id)
billing: orders(billing_address_id) -> addresses(id)
shipping: orders(shipping_address_id) -> addresses(id)
people_manager_id_fkey: people(manager_id) -> people(id)
friendships_one_fkey: friendships(one) -> people(id)
friendships_other_fkey: friendships(other) -> people(id)
unique presidents_successor_id_fkey: presidents(successor_id) -> presidents(id)
stocks_warehouse: stocks(warehouse_code, warehouse_region) -> warehouses(code, region)
reviews_film_id_fkey: reviews(film_id) -> films(id)
video_games_designer_id_fkey: video_games(designer_id) -> designers(id)
odd "fk": odd child(Odd Id) -> Odd Table(Id)
films_director_id_fkey: archive.films(director_id) -> directors(id)
"#;

/// View, `>` for the referencing side and `<` for the other, constraint and its table, aliases of
/// each column.
const VIEW_KEYS: &str = "
film_list > films_director_id_fkey films: director_id
film_list < roles_film_id_fkey roles: id
film_list < nominations_film_id_fkey nominations: id
film_list < screenings_film_id_fkey screenings: id
film_list < technical_details_film_id_fkey technical_details: id
film_list < posters_film_id_fkey posters: id
film_list < reviews_film_id_fkey reviews: id
showings < roles_film_id_fkey roles: id
showings < technical_details_film_id_fkey technical_details: id
showings < posters_film_id_fkey posters: id
director_list < films_director_id_fkey films: id
role_list > roles_film_id_fkey roles: film_id
role_list > roles_actor_id_fkey roles: actor_id
double_films > films_director_id_fkey films: maker, author
film_stats < films_director_id_fkey films: director_id
";

/// Function: origin -> target, `*` for many.
const COMPUTED: &str = "
successor: presidents -> presidents
predecessor: presidents -> presidents
recent_films_of: directors -> films *
maker: films -> directors
maker_of: films -> directors
neighbour: addresses -> addresses
children_of: people -> people *
designers: video_games -> designers
video_games: designers -> video_games *
";

/// Name(parameters) volatility: result. A parameter with `?` has a default, one with `...` is
/// variadic; a trailing `{}` marks a row type.
const ROUTINES: &str = "
hello() immutable: text
add_them(a integer, b integer) immutable: integer
greet(name? text, greeting? text) stable: text
whole_json( json) immutable: json
whole_jsonb( jsonb) immutable: jsonb
whole_text( text) immutable: text
whole_xml( xml) immutable: xml
whole_bytes( bytea) immutable: bytea
two_wholes( json) immutable: text
two_wholes( jsonb) immutable: text
overloaded() immutable: integer
overloaded(a integer) immutable: integer
overloaded(a integer, b integer) immutable: integer
overloaded(a text, b text, c? text) immutable: text
ambiguous(arg integer) immutable: integer
ambiguous(arg text, num? integer) immutable: integer
sum_of(numbers?... integer[]) immutable: bigint
with_out(a integer) immutable: record {}
numbers_as_table(up_to integer) immutable: setof record {}
numbers_as_set(up_to integer) immutable: setof integer
any_record() immutable: record {}
film_by_id(id integer) stable: films {}
films_since(since integer) stable: setof films {}
a_sale_point() immutable: point_of_sale {}
nothing() volatile: void
short_arguments(c character, v character varying, b bit) immutable: text
book_guest(entry text, guest text) volatile: guest_book {}
slow_function() volatile: text
welcome() immutable: text/html
logo() immutable: image/png
";

/// Returns the schema cache of the cinema.
pub(crate) fn cinema() -> SchemaCache {
    let mut cache = SchemaCache::default();
    for relation in lines(RELATIONS).map(relation) {
        let names = cache.relations.entry(relation.name.schema.clone()).or_default();
        names.insert(relation.name.name.clone(), Arc::new(relation));
    }
    let mut foreign_keys: Vec<_> = lines(FOREIGN_KEYS).map(foreign_key).collect();
    lines(VIEW_KEYS).for_each(|line| view_key(line, &mut foreign_keys));
    let computed: Vec<_> = lines(COMPUTED).map(computed).collect();
    cache.relationships =
        derive(RelationshipSources { relations: &cache.relations, foreign_keys: &foreign_keys, computed: &computed });
    for (oid, mut routine) in (1..).zip(lines(ROUTINES).map(|line| routine(line, &cache)).collect::<Vec<_>>()) {
        routine.oid = oid;
        let names = cache.routines.entry(routine.name.schema.clone()).or_default();
        names.entry(routine.name.name.clone()).or_default().push(Arc::new(routine));
    }
    let name = |name: &str| Some(qualified(name));
    cache.representations = HashMap::from([(
        "public.color".to_owned(),
        Representation {
            to_json: name("color_to_json"),
            from_json: name("color_from_json"),
            from_text: name("color_from_text"),
        },
    )]);
    let handler = |media_type: &str, function, relation, is_function| MediaHandler {
        media_type: media_type.to_owned(),
        function: qualified(function),
        relation,
        is_function,
    };
    cache.media_handlers = vec![
        handler("text/html", "film_html", name("films"), false),
        handler("application/vnd.cinema.film", "any_count", None, false),
        handler("*/*", "poster_image", name("posters"), false),
        handler("text/html", "welcome", None, true),
        handler("image/png", "logo", None, true),
    ];
    cache.time_zones = Arc::new(["UTC", "Europe/Berlin", "America/New_York"].map(str::to_owned).into());
    cache
}

/// Returns a qualified name, in `public` by default.
pub(crate) fn qualified(name: &str) -> QualifiedName {
    let (schema, name) = name.split_once('.').unwrap_or(("public", name));
    QualifiedName { schema: schema.to_owned(), name: name.trim_matches('"').to_owned() }
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty())
}

fn list(text: &str) -> Vec<String> {
    text.split(", ").filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn relation(line: &str) -> Relation {
    let (head, columns) = line.split_once(": ").unwrap();
    let (kind, head) = head.split_once(' ').unwrap();
    let (name, key) = head.strip_suffix(')').unwrap().split_once(" (").unwrap();
    let (kind, writable) = match kind {
        "table" => (RelationKind::Table, true),
        "view" => (RelationKind::View, !matches!(name, "anybody" | "showings")),
        _ => (RelationKind::MaterializedView, false),
    };
    Relation {
        name: qualified(name),
        comment: None,
        kind,
        insertable: writable,
        updatable: writable,
        deletable: writable,
        repeats_keys: kind == RelationKind::MaterializedView || (kind == RelationKind::View && !writable),
        primary_key: list(key),
        columns: columns.split("; ").map(column).map(|column| (column.name.clone(), column)).collect(),
    }
}

fn column(text: &str) -> Column {
    let spaced = SPACED.iter().find_map(|name| Some((*name, text.strip_prefix(name)?.trim_start())));
    let (name, rest) = spaced.unwrap_or_else(|| text.split_once(' ').unwrap());
    let (rest, default) = rest.split_once(" default ").map_or((rest, None), |(rest, default)| (rest, Some(default)));
    let (nominal, nullable) = rest.strip_suffix(" not null").map_or((rest, true), |nominal| (nominal, false));
    let (base, length) = match nominal.split_once('(') {
        Some((base, length)) => (base, length.trim_end_matches(')').parse().ok()),
        None => (nominal, None),
    };
    let base = match base {
        "public.short_text" => "character varying",
        "public.price" => "numeric",
        "public.color" => "integer",
        base => base,
    };
    Column {
        name: name.to_owned(),
        comment: None,
        nullable,
        base_type: base.to_owned(),
        nominal_type: nominal.to_owned(),
        max_length: length,
        default: default.map(str::to_owned),
        enum_labels: if base == "public.mood" { list("sad, calm, happy") } else { Vec::new() },
        domain: (nominal == "public.color").then(|| nominal.to_owned()),
    }
}

fn foreign_key(line: &str) -> ForeignKey {
    let (unique, line) = line.strip_prefix("unique ").map_or((false, line), |line| (true, line));
    let (constraint, ends) = line.split_once(": ").unwrap();
    let (origin, target) = ends.split_once(" -> ").unwrap();
    let end = |text: &str| {
        let (name, columns) = text.strip_suffix(')').unwrap().split_once('(').unwrap();
        ExposedKey { relation: qualified(name), is_view: false, columns: list(columns) }
    };
    let (referencing, referenced) = (vec![end(origin)], vec![end(target)]);
    ForeignKey { constraint: constraint.to_owned(), unique, referencing, referenced }
}

fn view_key(line: &str, keys: &mut [ForeignKey]) {
    let (head, aliases) = line.split_once(": ").unwrap();
    let [view, side, constraint, table] = head.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let of = |key: &&mut ForeignKey| key.constraint == constraint && key.referencing[0].relation == qualified(table);
    let key = keys.iter_mut().find(of).unwrap();
    let shown = if side == ">" { &mut key.referencing } else { &mut key.referenced };
    shown.extend(list(aliases).into_iter().map(|alias| ExposedKey {
        relation: qualified(view),
        is_view: true,
        columns: vec![alias],
    }));
}

fn computed(line: &str) -> ComputedRelationship {
    let (function, ends) = line.split_once(": ").unwrap();
    let (origin, target) = ends.split_once(" -> ").unwrap();
    let (target, to_one) = target.strip_suffix(" *").map_or((target, true), |target| (target, false));
    ComputedRelationship { function: qualified(function), origin: qualified(origin), target: qualified(target), to_one }
}

fn routine(line: &str, cache: &SchemaCache) -> Routine {
    let (head, result) = line.split_once(": ").unwrap();
    let (name, rest) = head.split_once('(').unwrap();
    let (parameters, volatility) = rest.split_once(") ").unwrap();
    let parameters: Vec<RoutineParameter> =
        parameters.split(", ").filter(|item| !item.is_empty()).map(parameter).collect();
    let (set, result) = result.strip_prefix("setof ").map_or((false, result), |result| (true, result));
    let (result, composite) = result.strip_suffix(" {}").map_or((result, false), |result| (result, true));
    let relation = cache.relation("public", result).filter(|_| composite).map(|relation| relation.name.clone());
    let is_own = relation.is_some() || ["point_of_sale", "text/html", "image/png"].contains(&result);
    let schema = if is_own { "public" } else { "pg_catalog" };
    let settings = if name == "slow_function" { vec![("statement_timeout".into(), "4321ms".into())] } else { vec![] };
    Routine {
        oid: 0,
        name: qualified(name),
        comment: None,
        variadic: parameters.iter().any(|parameter| parameter.variadic),
        parameters,
        returns: ReturnType {
            name: QualifiedName { schema: schema.to_owned(), name: result.to_owned() },
            set,
            composite,
            anonymous: name.starts_with("any_record"),
            void: result == "void",
            relation,
        },
        volatility: match volatility {
            "immutable" => Volatility::Immutable,
            "stable" => Volatility::Stable,
            _ => Volatility::Volatile,
        },
        isolation: None,
        settings,
    }
}

fn parameter(text: &str) -> RoutineParameter {
    let (name, sql_type) = text.split_once(' ').unwrap();
    let (name, variadic) = name.strip_suffix("...").map_or((name, false), |name| (name, true));
    let (name, required) = name.strip_suffix('?').map_or((name, true), |name| (name, false));
    let unbounded = match sql_type {
        "character" => "character varying",
        "bit" => "bit varying",
        other => other,
    };
    RoutineParameter {
        name: name.to_owned(),
        sql_type: sql_type.to_owned(),
        unbounded_type: unbounded.to_owned(),
        required,
        variadic,
    }
}

#[test]
fn the_test_schema_can_be_built() {
    let cache = cinema();
    assert!(cache.relation("public", "Odd Table").unwrap().columns.contains_key("first name"));
    assert_eq!(cache.relationships_of("public", "orders").len(), 2);
    let of_films = cache.relationships_of("public", "films");
    assert!(of_films.iter().any(|relationship| relationship.target.name == "actors"));
    assert_eq!(cache.routines_named("public", "overloaded").len(), 4);
}
