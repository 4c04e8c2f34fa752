/**
 * The verbs of the build under measurement: that of the checkout named by the first argument, else of the
 * checkout that this file belongs to. So one driver measures two commits.
 */
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = process.argv[2] ?? fileURLToPath(new URL('../..', import.meta.url));

const load = (name) => import(pathToFileURL(join(root, `packages/${name}/dist/index.js`)).href);

/** The parts below the verbs, for what is measured without these. */
export const links = () => load('link');
export const transport = () => load('transport');
export const wire = () => load('wire');

export const { completionError, openDevice, WorkCompletion } = await load('verbs-api');
/** Undefined in a build from before it. */
export const { CmId } = await load('rdmacm').catch(() => ({}));
