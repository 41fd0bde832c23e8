//! Which version is spoken. How connections behave is tested with `network`, which makes them.

use super::*;

#[test]
fn the_highest_common_version_is_picked() {
    let versions = Versions::new([(3, 0, 5), (1, 20, 30), (0, 0, 2), (18, 0, 9)]);
    assert_eq!(versions.pick(ApiKey::Metadata), Some(5));
    assert_eq!(versions.pick(ApiKey::Fetch), None, "the broker is too new");
    assert_eq!(versions.pick(ApiKey::Produce), None, "the broker is too old");
    assert_eq!(versions.pick(ApiKey::ApiVersions), Some(4));
    assert_eq!(versions.pick(ApiKey::ListGroups), None, "the broker does not serve it");
    // What makes no sense picks nothing.
    assert_eq!(Versions::new([(3, 5, 2)]).pick(ApiKey::Metadata), None);
}
