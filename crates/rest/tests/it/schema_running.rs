//! Which relations run functions of the database's owner, as the loaded schema cache says.

use std::collections::BTreeSet;

use portico_rest::schema::{LoadSettings, Relation, SchemaCache, load};

use crate::database::Cinema;

async fn cache_after(sql: &str) -> SchemaCache {
    let cinema = Cinema::open().await;
    cinema.administrator().await.batch_execute(sql).await.unwrap();
    let settings = LoadSettings { schemas: vec!["public".to_owned()], ..LoadSettings::default() };
    load(&cinema.authenticator().await, &settings).await.unwrap()
}

/// The relations whose names begin with `r_` of which this is true.
fn those(cache: &SchemaCache, what: impl Fn(&Relation) -> bool) -> BTreeSet<&str> {
    let all = cache.relations["public"].values();
    all.filter(|relation| relation.name.name.starts_with("r_") && what(relation))
        .map(|relation| relation.name.name.as_str())
        .collect()
}

/// A function of somebody's, a domain with it, and a plain table.
const BASE: &str = "create schema hidden;
    create function hidden.mine(anyelement) returns boolean language plpgsql as $$ begin return true; end $$;
    create domain hidden.checked as int check (hidden.mine(value));
    create domain hidden.narrow as hidden.checked;
    create table r_plain (id int primary key, owner uuid default auth.uid(), at timestamptz default now());
    alter table r_plain enable row level security;
    create policy own on r_plain using (owner = (select auth.uid()) and auth.role() = 'authenticated') with check (auth.jwt() is not null);";

#[tokio::test]
async fn reads_run_what_views_and_policies_call() {
    let cache = cache_after(&format!(
        "{BASE}
         create view r_shown as select id, upper(owner::text), count(*) over () from r_plain;
         create materialized view r_kept as select hidden.mine(id) from r_plain;
         create view r_of_kept as select * from r_kept;
         create view hidden.calling as select id, hidden.mine(id) from r_plain;
         create view r_calling as select id from hidden.calling;
         create view r_setting as select set_config('app.a', id::text, false) from r_plain;
         create view r_querying as select query_to_xml('select 1', false, false, '');
         create view r_narrow as select id::hidden.narrow from r_plain;
         create table r_guarded (id int primary key);
         create policy guard on r_guarded using (hidden.mine(id));
         create table r_inserting (id int primary key);
         create policy guard on r_inserting for insert with check (set_config('app.a', 'b', false) is null);
         create table r_looking (id int primary key);
         create policy looking on r_looking using (exists (select from r_guarded where r_guarded.id = r_looking.id));
         create table r_default (id int primary key, other boolean default hidden.mine(1));
         create foreign table r_foreign (id int) server nowhere;"
    ))
    .await;
    assert_eq!(
        those(&cache, |relation| relation.runs_functions),
        BTreeSet::from([
            "r_calling",
            "r_foreign",
            "r_guarded",
            "r_inserting",
            "r_looking",
            "r_narrow",
            "r_querying",
            "r_setting"
        ])
    );
}

#[tokio::test]
async fn writes_run_triggers_defaults_and_checks_as_well() {
    let cache = cache_after(&format!(
        "{BASE}
         create function hidden.gone() returns trigger language plpgsql as $$ begin return old; end $$;
         create table r_far (id int primary key);
         create table r_parent (id int primary key, far int references r_far);
         create table r_child (id int primary key, parent int references r_parent on delete cascade);
         create trigger gone after delete on r_child for each row execute function hidden.gone();
         create table r_default (id int primary key, other boolean default hidden.mine(1));
         create table r_setting (id int primary key, other text default set_config('app.a', 'b', false));
         create table r_checked (id int primary key check (hidden.mine(id)));
         create table r_domain (id int primary key, other hidden.narrow);
         create table r_domains (id int primary key, others hidden.checked[]);
         create table r_guarded (id int primary key);
         create policy guard on r_guarded for insert with check (hidden.mine(id));
         create table r_ruled (id int primary key);
         create rule ruled as on update to r_ruled do also select 1;
         create view r_shown as select id from r_plain;"
    ))
    .await;
    assert_eq!(
        those(&cache, |relation| relation.runs_functions_on_write),
        BTreeSet::from([
            "r_checked",
            "r_child",
            "r_default",
            "r_domain",
            "r_domains",
            "r_guarded",
            "r_parent",
            "r_ruled",
            "r_setting",
            "r_shown"
        ])
    );
    assert_eq!(those(&cache, |relation| relation.runs_functions), BTreeSet::from(["r_guarded"]));
}

/// They run nothing of anybody's, and yet see what the request says of itself, or write.
#[tokio::test]
async fn what_matters_is_the_transaction_of_views_policies_defaults_and_checks() {
    let cache = cache_after(&format!(
        "{BASE}
         create view r_looking as select current_setting('request.path', true) as path;
         create view r_above as select path from r_looking;
         create table r_policy (id int primary key);
         create policy looking on r_policy using (current_setting('app.a') = 'x');
         create table r_default (id int primary key, path text default current_setting('request.path', true));
         create table r_checked (id int primary key check (id::text <> current_setting('request.path', true)));
         create table r_parent (id int primary key);
         alter table r_policy add column parent int references r_parent on delete cascade;
         create table r_counted (id bigserial primary key);
         create view r_counting as select nextval('r_counted_id_seq') as number;
         create view r_shown as select id from r_plain;"
    ))
    .await;
    assert_eq!(
        those(&cache, |relation| relation.sees_transaction),
        BTreeSet::from(["r_above", "r_checked", "r_counting", "r_default", "r_looking", "r_parent", "r_policy"])
    );
    assert!(those(&cache, |relation| relation.runs_functions).is_empty());
}

#[tokio::test]
async fn casts_between_types_of_postgresql_s_own_are_its_own_until_somebody_makes_one() {
    let plain = cache_after(&format!(
        "{BASE}
         create type hidden.shade as enum ('dark');
         create function hidden.shown(hidden.shade) returns text language sql as $$ select 'a' $$;
         create cast (hidden.shade as text) with function hidden.shown(hidden.shade)"
    ))
    .await;
    assert!(plain.plain_casts);
    let cast = cache_after(&format!(
        "{BASE}
         create function hidden.squared(point) returns integer language sql as $$ select 1 $$;
         create cast (point as integer) with function hidden.squared(point)"
    ))
    .await;
    assert!(!cast.plain_casts);
    // Where `pg_catalog` is named it comes when it is its turn
    let cinema = Cinema::open().await;
    let settings = LoadSettings {
        schemas: vec!["public".to_owned()],
        extra_search_path: vec!["pg_catalog".to_owned()],
        ..LoadSettings::default()
    };
    assert!(!load(&cinema.authenticator().await, &settings).await.unwrap().plain_casts);
}

/// Comparisons are made with any operator that fits, and JSON with any cast.
#[tokio::test]
async fn operators_and_casts_to_json_of_somebody_s_make_every_read_suspect() {
    for sql in [
        "create function hidden.same(point, point) returns boolean language sql as 'select true';
         create operator public.= (leftarg = point, rightarg = point, function = hidden.same)",
        "create type hidden.shade as enum ('dark');
         create function hidden.shown(hidden.shade) returns json language sql as $$ select '1'::json $$;
         create cast (hidden.shade as json) with function hidden.shown(hidden.shade)",
    ] {
        let cache = cache_after(&format!("{BASE} {sql}")).await;
        let plain = cache.relation("public", "r_plain").unwrap();
        assert!(plain.runs_functions && plain.runs_functions_on_write, "{sql}");
    }
    let cache = cache_after(BASE).await;
    let plain = cache.relation("public", "r_plain").unwrap();
    assert!(!plain.runs_functions && !plain.runs_functions_on_write);
}
