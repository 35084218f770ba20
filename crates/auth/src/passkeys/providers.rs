//! The names of the products that keep passkeys, by the AAGUID that they report.
//!
//! The names are those of the public list of passkey providers. They are labels for people: nothing
//! is decided by them, since any authenticator can report any AAGUID.

use uuid::Uuid;
use uuid::uuid;

const PROVIDERS: [(Uuid, &str); 33] = [
    (uuid!("fbfc3007-154e-4ecc-8c0b-6e020557d7bd"), "Apple Passwords"),
    (uuid!("dd4ec289-e01d-41c9-bb89-70fa845d4bf2"), "iCloud Keychain (Managed)"),
    (uuid!("ea9b8d66-4d01-1d21-3ce4-b6b48cb575d4"), "Google Password Manager"),
    (uuid!("adce0002-35bc-c60a-648b-0b25f1f05503"), "Chrome on Mac"),
    (uuid!("b5397666-4885-aa6b-cebf-e52262a439a2"), "Chromium Browser"),
    (uuid!("771b48fd-d3d4-4f74-9232-fc157ab0507a"), "Edge on Mac"),
    (uuid!("08987058-cadc-4b81-b6e1-30de50dcbe96"), "Windows Hello"),
    (uuid!("9ddd1817-af5a-4672-a2b9-3e3dd95000a9"), "Windows Hello"),
    (uuid!("6028b017-b1d4-4c02-b4b3-afcdafc96bb2"), "Windows Hello"),
    (uuid!("d3452668-01fd-4c12-926c-83a4204853aa"), "Microsoft Password Manager"),
    (uuid!("53414d53-554e-4700-0000-000000000000"), "Samsung Pass"),
    (uuid!("bada5566-a7aa-401f-bd96-45619a55120d"), "1Password"),
    (uuid!("d548826e-79b4-db40-a3d8-11116f7e8349"), "Bitwarden"),
    (uuid!("531126d6-e717-415c-9320-3d9aa6981239"), "Dashlane"),
    (uuid!("50726f74-6f6e-5061-7373-50726f746f6e"), "Proton Pass"),
    (uuid!("b84e4048-15dc-4dd0-8640-f4f60813c8af"), "NordPass"),
    (uuid!("0ea242b4-43c4-4a1b-8b17-dd6d0b6baec6"), "Keeper"),
    (uuid!("f3809540-7f14-49c1-a8b3-8f813b225541"), "Enpass"),
    (uuid!("fdb141b2-5d84-443e-8a35-4698c205a502"), "KeePassXC"),
    (uuid!("eaecdef2-1c31-5634-8639-f1cbd9c00a08"), "KeePassDX"),
    (uuid!("b78a0a55-6ef8-d246-a042-ba0f6d55050c"), "LastPass"),
    (uuid!("b35a26b2-8f6e-4697-ab1d-d44db4da28c6"), "Zoho Vault"),
    (uuid!("de503f9c-21a4-4f76-b4b7-558eb55c6f89"), "Devolutions"),
    (uuid!("22248c4c-7a12-46e2-9a41-44291b373a4d"), "LogMeOnce"),
    (uuid!("bfc748bb-3429-4faa-b9f9-7cfa9f3b76d0"), "iPasswords"),
    (uuid!("891494da-2c90-4d31-a9cd-4eab0aed1309"), "Sésame"),
    (uuid!("39a5647e-1853-446c-a1f6-a79bae9f5bc7"), "IDmelon"),
    (uuid!("cc45f64e-52a2-451b-831a-4edd8022a202"), "ToothPic Passkey Provider"),
    (uuid!("66a0ccb3-bd6a-191f-ee06-e375c50b9846"), "Thales Bio iOS SDK"),
    (uuid!("8836336a-f590-0921-301d-46427531eee6"), "Thales Bio Android SDK"),
    (uuid!("cd69adb5-3c7a-deb9-3177-6800ea6cb72a"), "Thales PIN Android SDK"),
    (uuid!("17290f1e-c212-34d0-1423-365d729f09d9"), "Thales PIN iOS SDK"),
    (uuid!("2fc0579f-8113-47ea-b116-bb5a8db9202a"), "YubiKey 5 Series with NFC"),
];

/// Returns the name of the product with this AAGUID, if it is known.
pub(super) fn name_of(aaguid: [u8; 16]) -> Option<&'static str> {
    let aaguid = Uuid::from_bytes(aaguid);
    PROVIDERS.iter().find(|(known, _)| *known == aaguid).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_products_have_one_name_each() {
        let mut seen = std::collections::HashSet::new();
        for (aaguid, name) in PROVIDERS {
            assert!(seen.insert(aaguid), "{aaguid}");
            assert_eq!(name_of(*aaguid.as_bytes()), Some(name));
        }
        assert_eq!(name_of([0; 16]), None);
    }
}
