//! The total in `Content-Range`, counted or estimated.

use super::CinemaServer;

/// Functions whose number of rows the planner does not know: it expects one row of them, or a
/// hundred.
const SURPRISES: &str = "
    create function six_items() returns setof items language plpgsql rows 1 stable
      as $$ begin return query select * from items order by id limit 6; end $$;
    create function twelve_items() returns setof items language plpgsql rows 1 stable
      as $$ begin return query select * from items order by id limit 12; end $$;
    create function a_hundred_items() returns setof items language plpgsql rows 100 stable
      as $$ begin return query select * from items order by id limit 6; end $$;
    create view six as select * from six_items();
    create view twelve as select * from twelve_items();
    create view hundred as select * from a_hundred_items();
    grant select on six, twelve, hundred to anon; analyze items; notify pgrst";

/// A read with a `Range` header (empty: none), and the status and `Content-Range` of its response.
type Counted = (&'static str, &'static str, u16, &'static str);

async fn check(server: &CinemaServer, mode: &str, reads: &[Counted]) {
    for (resource, range, status, expected) in reads {
        for method in ["GET", "HEAD"] {
            if method == "HEAD" && !range.is_empty() {
                continue;
            }
            let request = server.request(method.parse().unwrap(), &format!("/rest/v1/{resource}"));
            let request = request.header("prefer", &format!("count={mode}"));
            let request = if range.is_empty() { request } else { request.header("range", range) };
            let response = request.send().await;
            let found = (response.status, response.header("content-range"));
            assert_eq!(found, (*status, Some(*expected)), "{mode} {method} {resource} {range}");
        }
    }
}

/// `items` has 15 rows, and the planner knows it.
#[tokio::test]
async fn counts_are_exact_planned_or_estimated() {
    let server = CinemaServer::with(|config| config.plan.max_rows = Some(5)).await;
    server.execute(SURPRISES).await;
    server.read("not_there").send().await.expect(404);
    let known: &[Counted] = &[
        ("items?select=id", "", 206, "0-4/15"),
        ("items?select=id&limit=2", "", 206, "0-1/15"),
        ("items?select=id&limit=50", "", 206, "0-4/15"),
        ("items?select=id&limit=0", "", 206, "*/15"),
        ("items?select=id&limit=2&offset=3", "", 206, "3-4/15"),
        ("items?select=id&offset=12", "", 206, "12-14/15"),
        ("items?select=id&offset=15", "", 206, "*/15"),
        ("items?select=id&offset=16", "", 416, "*/15"),
        ("items?select=id", "3-4", 206, "3-4/15"),
        ("items?select=id&limit=3&offset=8", "9-20", 206, "9-10/15"),
        ("items?select=id", "13-", 206, "13-14/15"),
    ];
    for mode in ["exact", "planned", "estimated"] {
        check(&server, mode, known).await;
    }
    // Fewer rows than the size of a page are counted, whatever the client's limit is
    let few: &[Counted] = &[
        ("items?select=id&id=lt.4", "", 200, "0-2/3"),
        ("items?select=id&id=lt.6", "", 200, "0-4/5"),
        ("items?select=id&id=lt.6&limit=2", "", 206, "0-1/5"),
        ("items?select=id&id=lt.4&limit=0", "", 206, "*/3"),
        ("items?select=id&id=lt.4&limit=2&offset=1", "", 206, "1-2/3"),
        ("items?select=id&id=lt.4&offset=3", "", 206, "*/3"),
        ("items?select=id&id=lt.4&offset=4", "", 416, "*/3"),
        ("items?select=id&id=lt.4", "1-1", 206, "1-1/3"),
        ("items?select=id&id=lt.0", "", 200, "*/0"),
    ];
    for mode in ["exact", "estimated"] {
        check(&server, mode, few).await;
    }
    // The planner is wrong
    check(&server, "exact", &[("twelve?select=id", "", 206, "0-4/12")]).await;
    let planned: &[Counted] = &[
        ("six?select=id", "", 200, "0-4/1"),
        ("six?select=id&limit=2", "", 200, "0-1/1"),
        ("hundred?select=id&limit=2", "", 206, "0-1/100"),
    ];
    check(&server, "planned", planned).await;
    let estimated: &[Counted] = &[
        ("six?select=id", "", 206, "0-4/6"),
        ("six?select=id&limit=2", "", 206, "0-1/6"),
        ("six?select=id&limit=2&offset=4", "", 206, "4-5/6"),
        // At most one row more than a page is counted
        ("twelve?select=id", "", 206, "0-4/6"),
        // A page behind it is no error, and shows that there are more
        ("twelve?select=id&limit=2&offset=8", "", 206, "8-9/10"),
        ("twelve?select=id&offset=7", "", 206, "7-11/12"),
        ("twelve?select=id&offset=10", "", 206, "10-11/12"),
        ("twelve?select=id", "8-9", 206, "8-9/10"),
        ("hundred?select=id", "", 206, "0-4/100"),
    ];
    check(&server, "estimated", estimated).await;
    let functions: &[Counted] = &[
        ("rpc/numbers_as_set?up_to=12", "", 206, "0-4/12"),
        ("rpc/numbers_as_set?up_to=12&limit=3", "", 206, "0-2/12"),
        ("rpc/numbers_as_set?up_to=12&limit=3&offset=9", "", 206, "9-11/12"),
        ("rpc/numbers_as_set?up_to=3", "", 200, "0-2/3"),
    ];
    for mode in ["exact", "estimated"] {
        check(&server, mode, functions).await;
    }
    check(&server, "planned", &[("rpc/numbers_as_set?up_to=12", "", 200, "0-4/*")]).await;
}

#[tokio::test]
async fn an_estimated_count_without_a_maximum_is_exact_unless_more_are_expected() {
    let server = CinemaServer::with(|config| config.plan.max_rows = None).await;
    server.execute(SURPRISES).await;
    server.read("not_there").send().await.expect(404);
    let estimated: &[Counted] = &[
        ("items?select=id", "", 200, "0-14/15"),
        ("items?select=id&limit=2&offset=3", "", 206, "3-4/15"),
        ("twelve?select=id", "", 200, "0-11/12"),
        ("twelve?select=id&limit=2&offset=8", "", 206, "8-9/12"),
        ("hundred?select=id", "", 206, "0-5/100"),
    ];
    check(&server, "estimated", estimated).await;
}
