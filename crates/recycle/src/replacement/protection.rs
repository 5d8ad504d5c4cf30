//! Decides whether recycle-eks protects the old node of a surge from scale-in, and so takes that protection away again at its end.

use crate::cluster::group::Group;
use crate::input::model::{Input, Override};
use crate::records::node_record::Record;

/// Checks this before the group is raised. A member that an operator or the group has protected keeps its protection at the end. The
/// protection for the restore of another node ends earlier than this drain, so it counts as none.
pub fn is_to_be_protected(input: &Input, group: &Group) -> bool {
    let is_meant = input.overrides.contains(&Override::ScaleInProtection) || group.protects_new_members;
    !(is_meant && group.is_protected(&input.instance_id))
}

/// Checks this for a group that an earlier attempt has raised. If the record names the node, an operator may have removed the protection
/// since. If it does not, a protection is an operator's, which the earlier attempt had to override.
pub fn is_to_be_protected_again(input: &Input, group: &Group, record: &Record) -> bool {
    let id = &input.instance_id;
    !record.protected.contains(id) && !group.is_protected(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{group, input};

    #[test]
    fn only_a_node_that_nobody_else_protects_gets_a_protection_that_ends() {
        let overriding = json!({"override": ["scale_in_protection"]});
        for (name, more, is_protected, protects_new_members, at_first) in [
            ("free", json!({}), false, false, true),
            ("protected for another restore", json!({}), true, false, true),
            ("an operator's", overriding.clone(), true, false, false),
            (
                "an operator's that is gone by now",
                overriding,
                false,
                false,
                true,
            ),
            ("the group's", json!({}), true, true, false),
            (
                "the group's that an operator removed",
                json!({}),
                false,
                true,
                true,
            ),
        ] {
            let input = input(more);
            let mut group = group();
            group.protects_new_members = protects_new_members;
            group.members[0].protected_from_scale_in = is_protected;
            assert_eq!(group.members[0].instance, input.instance_id);
            assert_eq!(is_to_be_protected(&input, &group), at_first, "{name}");
            let by_others = Record::default();
            let again = is_to_be_protected_again(&input, &group, &by_others);
            assert_eq!(again, !is_protected, "{name}");
            let by_us = Record::default().protecting(std::slice::from_ref(&input.instance_id));
            assert!(!is_to_be_protected_again(&input, &group, &by_us), "{name}");
        }
    }
}
