//! The table of the names of an enum.

/// Implements `ALL`, `name` and `from_name` for an enum whose variants have no fields. The names are stable, because
/// configuration, stored data and wire formats use them. A variant that is missing in the table does not compile.
#[macro_export]
macro_rules! name_table {
    ($kind:ident { $($variant:ident: $name:literal),+ $(,)? }) => {
        impl $kind {
            /// Every value, in the order of the table of names.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$variant),+];

            /// Returns the stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)+
                }
            }

            /// Returns the value with this name; `None` if there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
