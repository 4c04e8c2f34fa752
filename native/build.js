// The number of the sources that the addon has to be built from. A package has the number itself in this file (scripts/release/main.mjs writes
// it); a checkout computes it from its sources, so that an addon that is older than they are does not load.
import { buildId } from './build-id.mjs';

export const BUILD = buildId();
