//! The notation of messages: one table per structure, from which its type and both directions of its codec come.
//!
//! Pure. Owns [`message!`] and [`Message`]. Always true: what is encoded decodes to itself in the same version, save
//! fields that version lacks, which come back as their default. Source: Kafka's schema files, KIP-482 (tags).
//!
//! ```text
//! message! {
//!     /// Brokers and topics.
//!     pub struct MetadataResponse<'a> flexible 9 {         root of a message, in compact encoding from version 9 on
//!         throttle_time_ms: i32 [3..],                     there in version 3 and later
//!         brokers: Vec<MetadataBroker<'a>>,                there in every version
//!         cluster_id: Option<Str<'a>> [2.., null 2..],     in which versions it may be null
//!         controller_id: i32 [1..] = -1,                   its value where a version lacks it, if not zero or empty
//!     } tagged {
//!         0 hints: Vec<Hint<'a>> [10..],                   tag first; written only when it differs from that value
//!     }
//! }
//! ```

use super::values::Wire;
use super::wire::{Form, Reader, Result, Writer};

/// The root of a message: a structure that knows from which version on it is flexible.
pub trait Message<'a>: Wire<'a> {
    /// First version in the encoding of KIP-482.
    const FLEXIBLE_FROM: i16;

    /// Reads a whole body. Errors: `Trailing` if something follows it, too.
    fn decode_body(mut reader: Reader<'a>, version: i16) -> Result<Self> {
        let message = Self::decode(&mut reader, Form::new(version, Self::FLEXIBLE_FROM))?;
        reader.finish()?;
        Ok(message)
    }

    /// Appends the body.
    fn encode_body(&self, writer: &mut Writer, version: i16) {
        self.encode(writer, Form::new(version, Self::FLEXIBLE_FROM));
    }
}

/// `flexible NEVER`: messages that were given up before KIP-482.
pub(crate) const NEVER: i16 = i16::MAX;

/// Defines structures; see the head of this file. Field names are Kafka's own words and carry a comment only where
/// those do not suffice.
macro_rules! message {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident $(<$life:lifetime>)? $(flexible $flexible:tt)? {
            $($(#[$note:meta])* $field:ident: $type:ty $([$versions:expr $(, null $null:expr)?])? $(= $default:expr)?,)*
        }
        $(tagged {
            $(
                $(#[$tag_note:meta])*
                $tag:literal $tagged:ident: $tag_type:ty [$tag_versions:expr] $(= $tag_default:expr)?,
            )*
        })?
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub struct $name $(<$life>)? {
            $($(#[$note])* pub $field: $type,)*
            $($($(#[$tag_note])* pub $tagged: $tag_type,)*)?
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                Self {
                    $($field: message!(@default $($default)?),)*
                    $($($tagged: message!(@default $($tag_default)?),)*)?
                }
            }
        }

        const _: () = {
            use $crate::protocol::values::Wire;
            use $crate::protocol::wire::{Form, Reader, Result, Tags, Writer};

            #[allow(unused_variables, unused_mut)]
            impl<'a> Wire<'a> for $name $(<$life>)? {
                type Owned = message!(@owned $name $($life)?);

                fn bytes_min(form: Form) -> usize {
                    let mut bytes = usize::from(form.flexible);
                    $(if message!(@holds form $($versions)?) {
                        bytes += <$type as Wire<'_>>::bytes_min(form);
                    })*
                    bytes
                }

                fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
                    $(let $field: $type = if message!(@holds form $($versions)?) {
                        Wire::decode(reader, message!(@null form $($($null)?)?))?
                    } else {
                        message!(@default $($default)?)
                    };)*
                    $($(let mut $tagged: $tag_type = message!(@default $($tag_default)?);)*)?
                    if form.flexible {
                        reader.tagged_fields(|tag, reader| {
                            $($(if tag == $tag && message!(@holds form $tag_versions) {
                                $tagged = Wire::decode(reader, form.nullable(true))?;
                                return Ok(true);
                            })*)?
                            Ok(false)
                        })?;
                    }
                    Ok(Self { $($field,)* $($($tagged,)*)? })
                }

                fn encode(&self, writer: &mut Writer, form: Form) {
                    $(if message!(@holds form $($versions)?) {
                        self.$field.encode(writer, message!(@null form $($($null)?)?));
                    })*
                    if form.flexible {
                        let mut tags = Tags::default();
                        $($(if message!(@holds form $tag_versions) {
                            let default: $tag_type = message!(@default $($tag_default)?);
                            if self.$tagged != default {
                                tags.push($tag, &self.$tagged, form.nullable(true));
                            }
                        })*)?
                        writer.tagged_fields(tags);
                    }
                }

                fn into_owned(self) -> Self::Owned {
                    $name {
                        $($field: self.$field.into_owned(),)*
                        $($($tagged: self.$tagged.into_owned(),)*)?
                    }
                }

                fn sample(random: &mut fastrand::Rng, form: Form) -> Self {
                    let mut message = Self::default();
                    $(if message!(@holds form $($versions)?) {
                        message.$field = Wire::sample(random, message!(@null form $($($null)?)?));
                    })*
                    $($(if form.flexible && message!(@holds form $tag_versions) && random.bool() {
                        message.$tagged = Wire::sample(random, form);
                    })*)?
                    message
                }
            }

            message!(@root $name $($life)? [$($flexible)?]);
        };
    )*};
    (@holds $form:ident) => { true };
    (@holds $form:ident $versions:expr) => { ($versions).contains(&$form.version) };
    (@null $form:ident) => { $form.nullable(false) };
    (@null $form:ident $versions:expr) => { $form.nullable(($versions).contains(&$form.version)) };
    (@default) => { Default::default() };
    (@default $value:expr) => { $value };
    (@owned $name:ident) => { $name };
    (@owned $name:ident $life:lifetime) => { $name<'static> };
    (@root $name:ident $($life:lifetime)? []) => {};
    (@root $name:ident $($life:lifetime)? [$flexible:tt]) => {
        impl<'a> $crate::protocol::Message<'a> for $name $(<$life>)? {
            const FLEXIBLE_FROM: i16 = $flexible;
        }
    };
}

pub(crate) use message;
