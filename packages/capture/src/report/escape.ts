/**
 * Text into markup. Addresses, file names and reasons come from captures and command lines, so nothing
 * goes into a page but through here.
 */

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

// XML 1.0 §2.2: other control characters, lone surrogates and U+FFFE/F are not allowed, even escaped.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for.
const notXml = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

/** For text and quoted attributes in HTML and XML; characters that XML can't carry become U+FFFD. */
export const escapeMarkup = (text: string): string =>
  text.replaceAll(notXml, '\ufffd').replaceAll(/[&<>"']/g, (character) => entities[character]);

/**
 * JSON that may stand in a `<script>` element: no `<`, so neither `</script>` nor `<!--` can end or change it
 * (HTML Living Standard §4.12.1.3).
 */
export const embedJson = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');
