//! Tables that do not fit the schema, and callers that do not fit the table.
use super::*;

const APPEND: &str = "/harness.audit.v1.AuditService/Append";
const SERVICE: &str = "harness.audit.v1.AuditService";

fn complete() -> Vec<Row> {
    ["Append", "ReadStream", "Query", "Prove", "Checkpoint", "Export"]
        .map(|name| format!("/{SERVICE}/{name}").leak() as &'static str)
        .map(|method| Row { method, callers: &[Caller::Auditor] })
        .to_vec()
}

fn table(rows: &[Row]) -> Result<Table, Mismatch> {
    Table::new(rows, proto::DESCRIPTORS, &[SERVICE])
}

#[test]
fn a_complete_table_lists_every_method_and_health() {
    let methods = table(&complete()).unwrap().methods();
    assert_eq!(methods.len(), 8);
    assert!(methods.contains(&APPEND));
    assert!(methods.contains(&"/grpc.health.v1.Health/Watch"));
}

#[test]
fn a_method_without_a_row_stops_the_start() {
    let rows: Vec<_> = complete().into_iter().filter(|row| row.method != APPEND).collect();
    assert_eq!(
        table(&rows).unwrap_err(),
        Mismatch::Rows { missing: vec![APPEND.to_owned()], wrong: Vec::new() }
    );
}

#[test]
fn a_row_without_a_method_stops_the_start() {
    let mut rows = complete();
    rows.push(Row { method: "/harness.audit.v1.AuditService/Erase", callers: &[Caller::Auditor] });
    assert_eq!(
        table(&rows).unwrap_err(),
        Mismatch::Rows { missing: Vec::new(), wrong: vec!["/harness.audit.v1.AuditService/Erase"] }
    );
}

#[test]
fn a_row_that_is_empty_or_stands_twice_stops_the_start() {
    for row in [
        Row { method: APPEND, callers: &[] },
        Row { method: APPEND, callers: &[Caller::AnyService] },
    ] {
        let mut rows = complete();
        rows.push(row);
        assert_eq!(
            table(&rows).unwrap_err(),
            Mismatch::Rows { missing: Vec::new(), wrong: vec![APPEND] }
        );
    }
}

#[test]
fn a_service_that_the_schema_lacks_stops_the_start() {
    assert_eq!(
        Table::new(&[], proto::DESCRIPTORS, &["harness.audit.v2.AuditService"]).unwrap_err(),
        Mismatch::NoService { service: "harness.audit.v2.AuditService".to_owned() }
    );
}

#[test]
fn only_the_listed_kind_is_allowed_and_only_by_the_exact_path() {
    let service = |service| Identity::Service { service, instance: "0".to_owned() };
    let auditor = Identity::Auditor { name: "eve".to_owned() };
    let client = Identity::Client { tenant: "t".to_owned(), name: "c".to_owned() };
    let table = table(&complete()).unwrap();
    assert!(table.allows(APPEND, &auditor));
    for path in
        ["harness.audit.v1.AuditService/Append", "/harness.audit.v1.AuditService/append", "", "/"]
    {
        assert!(!table.allows(path, &auditor), "{path}");
    }
    assert!(!table.allows(APPEND, &client));
    for each in Service::ALL {
        assert!(!table.allows(APPEND, &service(each)));
        assert!(table.allows(HEALTH_WATCH, &service(each)));
    }
    assert!(Caller::Service(Service::AgentSvc).is(&service(Service::AgentSvc)));
    assert!(!Caller::Service(Service::AgentSvc).is(&service(Service::Gateway)));
    assert!(Caller::Client.is(&client));
}
