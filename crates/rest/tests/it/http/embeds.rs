//! Embeds in detail.

use portico_testkit::TestResponse;
use serde_json::{Value, json};

use super::CinemaServer;

const SHOP: &str = "
    create table clients (id int primary key, name text);
    create table projects (id int primary key, name text, client_id int references clients, cost int);
    create table tasks (id int primary key, project_id int references projects);
    create table passports (id int primary key, owner_id int unique references clients, number text);
    create table profiles (client_id int primary key references clients, motto text);
    insert into clients values (1, 'Ann'), (2, 'Bob');
    insert into projects values (1, 'p1', 2, 10), (2, 'p2', 1, 20), (3, 'p3', 1, 30), (4, 'p4', null, 40);
    insert into tasks values (1, 1), (2, 2), (3, 2);
    insert into passports values (5, 1, 'x');
    insert into profiles values (2, 'none');
    create function client_of(projects) returns clients language sql stable
      as $$ select * from clients where id = $1.client_id $$;
    create function clients_of(projects) returns setof clients rows 1 language sql stable
      as $$ select * from clients where id = $1.client_id $$;
    create function no_project() returns projects language sql stable as 'select null::projects';
    grant all on clients, projects, tasks, passports, profiles to service_role;
    grant execute on function client_of, clients_of, no_project to service_role;
    notify pgrst";

struct ClientsServer(CinemaServer);

impl ClientsServer {
    async fn open() -> Self {
        let server = CinemaServer::with(|config| config.plan.aggregates = true).await;
        server.execute(SHOP).await;
        server.secret("/not_there").send().await.expect(404);
        Self(server)
    }

    async fn ask(&self, resource: &str) -> TestResponse {
        self.0.secret(&format!("/{resource}")).send().await
    }

    async fn rows(&self, resource: &str) -> Value {
        self.ask(resource).await.expect(200).json()
    }

    /// Returns the code and the message of an error.
    async fn refusal(&self, resource: &str, status: u16) -> (String, String) {
        let refused = self.ask(resource).await.expect(status).json();
        let text = |key: &str| refused[key].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }
}

#[tokio::test]
async fn empty_embeds_have_no_key_at_any_depth() {
    let shop = ClientsServer::open().await;
    let first = json!([{ "id": 1 }]);
    for select in [
        "id,projects()",
        "id,projects(tasks())",
        "id,projects(tasks(projects()))",
        "id,projects(tasks(),clients(passports()))",
        "id,projects(...tasks())",
        "id,...passports(clients())",
        "id,...projects(tasks())",
    ] {
        assert_eq!(shop.rows(&format!("clients?select={select}&order=id&limit=1")).await, first, "{select}");
    }
    assert_eq!(shop.rows("clients?select=projects(tasks())&order=id&limit=1").await, json!([{}]));
    // An embed that selects something has its key, without the embeds below it that select nothing
    let deep = shop.rows("clients?select=projects(tasks(id,projects()))&id=eq.2").await;
    assert_eq!(deep, json!([{ "projects": [{ "tasks": [{ "id": 1 }] }] }]));
    // They still filter
    let inner = shop.rows("clients?select=id,projects!inner(tasks!inner())&projects.tasks.id=eq.1").await;
    assert_eq!(inner, json!([{ "id": 2 }]));
    let without = shop.rows("projects?select=id,clients(passports())&clients=is.null").await;
    assert_eq!(without, json!([{ "id": 4 }]));
    let written = shop.0.write("PATCH", "clients?id=eq.1&select=id,projects(tasks())", &json!({ "name": "An" }));
    let written = written.header("prefer", "return=representation").send().await.expect(200);
    assert_eq!(written.json(), first);
}

#[tokio::test]
async fn a_sort_by_an_embed_uses_the_aliases_of_the_embed() {
    let shop = ClientsServer::open().await;
    for resource in [
        "projects?select=cost.sum(),...clients(client:name)&order=clients(client)",
        "projects?select=...clients(client:name),cost.sum()&order=clients(client).asc.nullslast",
        "projects?select=cost.sum(),...clients(client:name)&order=clients(name)",
    ] {
        let rows = shop.rows(resource).await;
        let expected = json!([
            { "sum": 50, "client": "Ann" },
            { "sum": 10, "client": "Bob" },
            { "sum": 40, "client": null },
        ]);
        assert_eq!(rows, expected, "{resource}");
    }
    let counted =
        shop.rows("projects?select=...clients(client:name,count())&order=clients(client).desc.nullslast").await;
    assert_eq!(
        counted,
        json!([
            { "client": "Bob", "count": 1 },
            { "client": "Ann", "count": 2 },
            { "client": null, "count": 1 },
        ])
    );
    let ids = async |resource: &str| {
        let rows = shop.rows(resource).await;
        rows.as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("projects?select=id,...clients(client:name)&order=clients(client).desc,id").await, [4, 1, 2, 3]);
    assert_eq!(ids("projects?select=id,c:clients(client:name)&order=c(client),id").await, [2, 3, 1, 4]);
    assert_eq!(ids("projects?select=id,c:clients(n:id::text)&order=c(n).desc.nullslast,id").await, [1, 2, 3, 4]);
    assert_eq!(ids("projects?select=id,clients(id)&order=clients(name),id&offset=1").await, [3, 1, 4]);
    // Columns that a spread inside of the embed adds to it
    let tasks = "tasks?select=id,...projects(name,...clients(client:name))";
    assert_eq!(ids(&format!("{tasks}&order=projects(client),id")).await, [2, 3, 1]);
    assert_eq!(ids("tasks?select=id,p:projects(...clients(name))&order=p(name).desc,id").await, [1, 2, 3]);
    let counted = shop.rows("tasks?select=count(),...projects(...clients(client:name))&order=projects(client)").await;
    assert_eq!(counted, json!([{ "count": 2, "client": "Ann" }, { "count": 1, "client": "Bob" }]));
    let counted =
        shop.rows("tasks?select=id.count(),...projects(cost.sum(),...clients(name))&order=projects(name).desc").await;
    assert_eq!(counted, json!([{ "count": 1, "sum": 10, "name": "Bob" }, { "count": 2, "sum": 40, "name": "Ann" }]));
    // The alias hides the column of its name
    assert_eq!(ids("projects?select=id,clients(name:id)&order=clients(name).desc.nullslast,id").await, [1, 2, 3, 4]);
    let (code, message) = shop.refusal("projects?select=id,clients(client:name)&order=clients(title)", 400).await;
    assert_eq!((code.as_str(), message.as_str()), ("42703", "column clients_1.title does not exist"));
}

#[tokio::test]
async fn the_error_of_an_impossible_sort_names_the_alias() {
    let shop = ClientsServer::open().await;
    for (resource, origin, target) in [
        ("clients?select=id,projects(id)&order=projects(id)", "clients", "projects"),
        ("clients?select=id,work:projects(id)&order=work(id)", "clients", "work"),
        ("projects?select=id,clients(id,all:projects(id))&clients.order=all(id)", "clients", "all"),
    ] {
        let refused = shop.ask(resource).await.expect(400).json();
        assert_eq!(refused["code"], "PGRST118");
        assert_eq!(refused["message"], format!("A related order on '{target}' is not possible"));
        let details = format!("'{origin}' and '{target}' do not form a many-to-one or one-to-one relationship");
        assert_eq!(refused["details"], details);
    }
    let (code, message) = shop.refusal("projects?select=id,c:clients(id)&order=clients(id)", 400).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("PGRST108", "'clients' is not an embedded resource in this request")
    );
}

#[tokio::test]
async fn the_column_of_its_foreign_key_selects_a_one_to_one_embed() {
    let shop = ClientsServer::open().await;
    let number = json!([{ "id": 1, "owner_id": { "number": "x" } }, { "id": 2, "owner_id": null }]);
    assert_eq!(shop.rows("clients?select=id,owner_id(number)&order=id").await, number);
    assert_eq!(shop.rows("passports?select=owner_id(name)").await, json!([{ "owner_id": { "name": "Ann" } }]));
    assert_eq!(shop.rows("profiles?select=client_id(name)").await, json!([{ "client_id": { "name": "Bob" } }]));
    let motto = shop.rows("clients?select=about:client_id(motto)&id=eq.2").await;
    assert_eq!(motto, json!([{ "about": { "motto": "none" } }]));
    // Its own column leads to both
    let (code, _) = shop.refusal("clients?select=id(*)", 300).await;
    assert_eq!(code, "PGRST201");
    // A foreign key of the origin takes precedence, and does not name many rows
    assert_eq!(shop.rows("projects?select=client_id(name)&id=eq.1").await, json!([{ "client_id": { "name": "Bob" } }]));
    let (code, _) = shop.refusal("projects?select=project_id(*)", 400).await;
    assert_eq!(code, "PGRST200");
}

#[tokio::test]
async fn two_embeds_of_one_name_are_rejected() {
    let shop = ClientsServer::open().await;
    for (resource, name) in [
        ("clients?select=id,projects(id),projects(name)", "clients_projects_1"),
        ("clients?select=id,x:projects(id),x:passports(id)", "clients_x_1"),
        ("projects?select=id,...clients(id),...clients(name)", "projects_clients_1"),
        ("projects?select=id,clients(id),...clients(name)", "projects_clients_1"),
        ("projects?select=id,clients(),clients(name)", "projects_clients_1"),
        ("projects?select=id,clients(passports(id),passports(number))", "clients_passports_2"),
        ("clients?select=projects(tasks(id),tasks(id))&offset=1", "projects_tasks_2"),
    ] {
        let (code, message) = shop.refusal(resource, 400).await;
        let expected = format!("table name \"{name}\" specified more than once");
        assert_eq!((code.as_str(), message), ("42712", expected), "{resource}");
    }
    let row = json!({ "id": 9, "name": "Cy" });
    let twice = shop.0.write("POST", "clients?select=projects(id),projects(name)", &row);
    let refused = twice.header("prefer", "return=representation").send().await.expect(400).json();
    assert_eq!(refused["code"], "42712");
    // Nothing is embedded if nothing is returned
    shop.0.write("POST", "clients?select=projects(id),projects(name)", &row).send().await.expect(201);
    let both = shop.rows("clients?select=id,projects(id),more:projects(name)&id=eq.2").await;
    assert_eq!(both, json!([{ "id": 2, "projects": [{ "id": 1 }], "more": [{ "name": "p1" }] }]));
}

#[tokio::test]
async fn one_composite_value_that_is_null_is_an_object_of_nulls() {
    let shop = ClientsServer::open().await;
    let nulls = json!({ "id": null, "name": null });
    assert_eq!(shop.rows("projects?select=id,client_of(*)&id=eq.4").await, json!([{ "id": 4, "client_of": nulls }]));
    let spread = shop.rows("projects?select=id,...client_of(client:name)&id=eq.4").await;
    assert_eq!(spread, json!([{ "id": 4, "client": null }]));
    assert_eq!(
        shop.rows("projects?select=id,client_of!inner(id)&id=eq.4").await,
        json!([{ "id": 4, "client_of": { "id": null } }])
    );
    assert_eq!(shop.rows("projects?select=id,client_of()&client_of=is.null").await, json!([]));
    // A set without rows has no object
    assert_eq!(shop.rows("projects?select=id,clients_of(*)&id=eq.4").await, json!([{ "id": 4, "clients_of": null }]));
    assert_eq!(shop.rows("projects?select=id,clients_of!inner(id)&id=eq.4").await, json!([]));
    let called = shop.rows("rpc/no_project?select=id,client_of(*),clients(name),tasks(id)").await;
    assert_eq!(called, json!({ "id": null, "client_of": nulls, "clients": null, "tasks": [] }));
}
