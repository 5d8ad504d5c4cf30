//! Checks that `restore-node` reads the records of every schema, byte for byte as earlier versions have written them.
//! Each new schema gets a folder here. The older folders stay unchanged.

use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, Phase, StoredClaim};
use recycle::records::node_record::Record;
use recycle::records::progress::Progress;
use recycle::records::restore_log::GroupChanges;

const SCHEMAS: [(u32, [&str; 5]); 1] = [(
    1,
    [
        include_str!("schema-1/claim.json"),
        include_str!("schema-1/claim-tag.txt"),
        include_str!("schema-1/record.json"),
        include_str!("schema-1/restore-log-tag.txt"),
        include_str!("schema-1/progress.json"),
    ],
)];

#[test]
fn there_is_a_folder_for_each_schema() {
    assert_eq!(
        SCHEMAS.map(|(schema, _)| schema).last(),
        Some(&recycle::records::schema::SCHEMA)
    );
}

#[test]
fn the_records_of_every_schema_are_read() {
    for (schema, [claim, tag, record, group_changes, progress]) in SCHEMAS {
        let expected = Claim {
            schema,
            fence: "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:c0f1d2e3-0000-4000-8000-000000000000#0"
                .parse()
                .unwrap(),
            group: "workers".parse().unwrap(),
            phase: Phase::Draining,
            urgency: Urgency::Planned,
            claimed_at: "2027-01-01T00:00:00Z".parse().unwrap(),
        };
        let expected = StoredClaim::Known(expected);
        assert_eq!(Claim::from_annotation(claim), expected, "{schema}");
        assert_eq!(
            Claim::from_tag(tag, &"workers".parse().unwrap()),
            expected,
            "{schema}"
        );

        let record: Record = serde_json::from_str(record).unwrap();
        assert_eq!(record.members_before.len(), 2, "{schema}");
        assert_eq!(record.replacement, "i-0aaaaaaaaaaaaaaaa".parse().ok(), "{schema}");
        assert_eq!(record.tainted_at, "2027-01-01T00:01:00Z".parse().ok(), "{schema}");
        assert!(record.was_unschedulable, "{schema}");
        assert_eq!(record.excluded_before.as_deref(), Some("false"), "{schema}");

        assert_eq!(
            group_changes.parse::<GroupChanges>().unwrap().to_string(),
            group_changes,
            "{schema}"
        );
        let progress: Progress = serde_json::from_str(progress).unwrap();
        assert_eq!(progress.names["awaited"], ["default/train"], "{schema}");
        assert_eq!(progress.blocked[0].what, "budget default/web", "{schema}");
    }
}

#[test]
fn the_newest_folder_has_the_records_of_this_version() {
    let (_, [claim, tag, record, _, progress]) = SCHEMAS[SCHEMAS.len() - 1];
    let StoredClaim::Known(read) = Claim::from_annotation(claim) else {
        panic!("{claim}");
    };
    assert_eq!(serde_json::to_string(&read).unwrap(), claim);
    assert_eq!(read.to_tag(), tag);
    let read: Record = serde_json::from_str(record).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), record);
    let read: Progress = serde_json::from_str(progress).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), progress);
}
