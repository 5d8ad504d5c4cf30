//! Property tests: an answer of EC2 is read as it is, or is an error that names the missing value.

use bad_input::{block_on, each_gap_of_xml, few_cases, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::cluster::instance::Instance;
use recycle::rotation::fleet::{Machine, Template, TemplateFacts};
use scripted_aws::ScriptedAws;

use crate::Error;
use crate::instances::Instances;

const ID: &str = "i-0123456789abcdef0";
const TEMPLATE: &str = "<launchTemplateVersionSet><item><versionNumber>2</versionNumber><launchTemplateData><imageId>ami-2</imageId>\
    </launchTemplateData></item></launchTemplateVersionSet>";
const INSTANCE: &str = "<reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><imageId>ami-1</imageId>\
    <instanceState><name>running</name></instanceState><launchTime>2027-01-01T00:00:00.000Z</launchTime></item></instancesSet></item>\
    </reservationSet>";

fn template(answer: &str) -> Result<TemplateFacts, Error> {
    let aws = ScriptedAws::new().on("DescribeLaunchTemplateVersions", answer);
    let (id, version) = ("lt-1".to_owned(), "$Latest".to_owned());
    block_on(Instances::new(&aws.config()).fetch_template(&Template { id, version }))
}

fn instance(answer: &str) -> Result<Option<Instance>, Error> {
    let aws = ScriptedAws::new().on("DescribeInstances", answer);
    block_on(Instances::new(&aws.config()).fetch(&ID.parse().unwrap()))
}

fn machines(answer: &str) -> Result<Vec<Machine>, Error> {
    let aws = ScriptedAws::new().on("DescribeInstances", answer);
    block_on(Instances::new(&aws.config()).fetch_machines(&[ID.parse().unwrap()]))
}

#[test]
fn an_incomplete_answer_is_no_other_template_and_no_missing_instance() {
    assert_eq!(template(TEMPLATE).unwrap().version, "2");
    for (gone, answer) in each_gap_of_xml(TEMPLATE) {
        match template(&answer) {
            Ok(found) => assert!(found.version == "2" && found.image.is_none(), "{gone}: {found:?}"),
            Err(error) => assert_eq!(error.failure(), Failure::InternalError, "{gone}"),
        }
    }
    let (whole, machine) = (instance(INSTANCE).unwrap(), machines(INSTANCE).unwrap());
    assert!(whole.is_some() && machine.len() == 1);
    for (gone, answer) in each_gap_of_xml(INSTANCE) {
        assert!(
            instance(&answer).is_ok_and(|found| found == whole) || instance(&answer).is_err(),
            "{gone}"
        );
        let found = machines(&answer).unwrap_or_default();
        assert!(found.is_empty() || found == machine, "{gone}: {found:?}");
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_template_is_as_answered_or_an_error(answer in spoiled_xml(TEMPLATE)) {
        match template(&answer) {
            Ok(found) => {
                prop_assert!(answer.contains(&format!("<versionNumber>{}<", found.version)), "{}", answer);
                let image = found.image.unwrap_or_default();
                prop_assert!(image.is_empty() || answer.contains(&format!("<imageId>{image}<")), "{}", answer);
            }
            Err(error) => prop_assert!(with_causes(&error).starts_with("failed to "), "{}", answer),
        }
    }

    #[test]
    fn an_instance_is_as_answered_or_an_error(answer in spoiled_xml(INSTANCE)) {
        match instance(&answer) {
            Ok(found) => prop_assert!(found.is_some_and(|found| found.id.as_str() == ID), "{}", answer),
            Err(error) => prop_assert!(with_causes(&error).starts_with("failed to "), "{}", answer),
        }
    }
}
