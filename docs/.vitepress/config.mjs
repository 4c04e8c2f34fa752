// The site of the documentation: `npm run docs:site` makes docs/.vitepress/dist from the Markdown files as they are, and the page of `roce view`. A
// dead link fails it.
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitepress';
import { viewerPage } from '../../packages/capture/dist/node/index.js';
import { pageOf, siteLinks, slugify } from './links.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const files = new Set();

/** A line of the sidebar: a page by its first heading. */
const entry = (path) => ({
  text: /^# (.*)$/m.exec(readFileSync(join(root, path), 'utf8'))[1].replaceAll('`', ''),
  link: `/${pageOf(path)
    .replace(/\.md$/, '')
    .replace(/index$/, '')}`,
});
const pages = (folder) =>
  readdirSync(join(root, folder))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name}`);

/** The pages of the guide in the order of its table of contents. */
const guide = [
  'docs/guide/README.md',
  ...[...readFileSync(join(root, 'docs/guide/README.md'), 'utf8').matchAll(/^\| \[.*?\]\((\S+\.md)\)/gm)].map(
    ([, name]) => `docs/guide/${name}`,
  ),
];
/** Pages of docs/ by section; the others are topics. */
const SECTIONS = {
  Tools: [
    'run',
    'perf',
    'capture',
    'capture-record',
    'capture-causes',
    'capture-report',
    'capture-export',
    'conform',
    'simulation',
    'interop',
  ],
  Inside: [
    'architecture',
    'run-loop',
    'icrc',
    'xdp',
    'congestion',
    'performance',
    'rules',
    'quirks',
    'testing',
  ],
};
const section = (name) => SECTIONS[name].map((page) => `docs/${page}.md`);
const own = new Set([...section('Tools'), ...section('Inside'), 'docs/README.md', 'docs/reference.md']);
const topics = ['docs/README.md', ...pages('docs').filter((path) => !own.has(path))];
const reference = ['docs/reference.md', ...pages('docs/api')];
/** The page that analyzes captures, next to the others. */
const VIEWER = 'captures.html';

/**
 * Vue where Node renders the pages: external, as Vite has it for packages that it finds from the root of the site. That is the root of the
 * repository, and Vue lies in the folder of the documents.
 */
const vue = {
  name: 'vue-of-the-documents',
  enforce: 'pre',
  resolveId: (id, _importer, { ssr }) => (ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : undefined),
};

export default defineConfig({
  title: 'node-roce',
  description: 'A RoCEv2 channel adapter in software for Node.js',
  srcDir: '..',
  srcExclude: ['**/node_modules/**', '**/.cache/**', '**/dist/**', '**/build/**', 'release/**'],
  cacheDir: '../.cache/vitepress',
  cleanUrls: false,
  vite: { plugins: [vue] },
  rewrites: pageOf,
  // Code and the names of its languages have contrast: the default themes have not.
  head: [['style', {}, 'html:root { --vp-code-lang-color: var(--vp-c-text-1); }']],
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    anchor: { slugify },
    headers: { level: [2, 3], slugify },
    config: (md) => md.use(siteLinks(root, files)),
  },
  themeConfig: {
    nav: [
      { text: 'Guide', link: '/docs/guide/' },
      { text: 'Tools', link: '/docs/run' },
      { text: 'Reference', link: '/docs/api/' },
      { text: 'Inside', link: '/docs/architecture' },
      { text: 'Analyze a capture', link: `/${VIEWER}`, target: '_self' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    outline: [2, 3],
    search: { provider: 'local' },
    sidebar: [
      { text: 'Guide', items: guide.map(entry) },
      { text: 'Topics', collapsed: true, items: topics.map(entry) },
      { text: 'Tools', collapsed: true, items: section('Tools').map(entry) },
      { text: 'Inside', collapsed: true, items: section('Inside').map(entry) },
      { text: 'Reference', collapsed: true, items: reference.map(entry) },
      {
        text: 'Project',
        collapsed: true,
        items: ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md'].map(entry),
      },
    ],
  },
  buildEnd({ outDir }) {
    writeFileSync(join(outDir, VIEWER), viewerPage());
    for (const path of files) {
      const target = join(outDir, 'files', `${path}.txt`);
      mkdirSync(dirname(target), { recursive: true });
      cpSync(join(root, path), target);
    }
  },
});
