// Links of the repository's Markdown files, as links of the site: to pages without `.md`, to other files as copies under /files/.
import { existsSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** The anchor of a heading, as GitHub makes it. */
export const slugify = (title) =>
  title
    .toLowerCase()
    .trim()
    .replace(/[^\p{L}\p{N}_\- ]/gu, '')
    .replaceAll(' ', '-');

/** `README.md` is the page of its folder. */
export const pageOf = (path) => path.replace(/(^|\/)README\.md$/, '$1index.md');

/**
 * A plugin of markdown-it that writes links anew. Throws for a link that leads nowhere; `files` takes the paths of the files that
 * have to be copied.
 */
export const siteLinks = (root, files) => (md) => {
  const rewrite = (path, href) => {
    if (href === '' || href.startsWith('#') || /^[a-z]+:/i.test(href)) return href;
    const [file, anchor] = href.split('#');
    const target = normalize(join(dirname(path), decodeURIComponent(file)));
    if (!existsSync(join(root, target))) throw new Error(`${path}: ${href}: no such file`);
    const hash = anchor === undefined ? '' : `#${anchor}`;
    if (target.endsWith('.md')) return `/${pageOf(target).replace(/(^|\/)index\.md$/, '$1')}${hash}`;
    if (statSync(join(root, target)).isDirectory()) return undefined;
    files.add(target);
    return `/files/${target}.txt`;
  };
  md.core.ruler.push('site-links', ({ tokens, env }) => {
    const path = env.path.slice(root.length);
    for (const { children } of tokens) {
      for (const token of children ?? []) {
        if (token.type !== 'link_open') continue;
        const href = rewrite(path, token.attrGet('href'));
        if (href === undefined) token.attrs = [];
        else token.attrSet('href', href);
        if (href?.startsWith('/files/')) token.attrSet('target', '_blank');
      }
    }
  });
};
