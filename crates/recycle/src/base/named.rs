//! Enums whose variants have names: on the wire, in texts and in documentation.

/// Defines an enum of names: `ALL` in the order of the variants, `name()`, and a serialization as the name.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

pub(crate) use named;
