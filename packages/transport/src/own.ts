/**
 * A field that others only look at is `readonly` to them; its owner writes it through `this as Own<Owner>`. Unlike a getter it costs no call where
 * the answer is nearly always the same, and nobody has to read the owner to know that it is at rest.
 */
export type Own<T> = { -readonly [Name in keyof T]: T[Name] };
