//! The table that gives each variant of an enum its name.

/// Implements `ALL`, `name` and `from_name` for an enum whose variants have no fields. The names are stable, because
/// configuration, stored data and wire formats use them. The code does not compile if a variant is missing in the
/// table.
#[macro_export]
macro_rules! name_table {
    ($kind:ident { $($variant:ident: $name:literal),+ $(,)? }) => {
        impl $kind {
            /// All values, in the order of the name table.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$variant),+];

            /// Returns the stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)+
                }
            }

            /// Returns the value with this name, or `None` if there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
