/** Bytes that V8 allocates in this thread, by its sampling heap profiler. */
import { Session } from 'node:inspector/promises';

/** Counts what is collected in the meantime, too; a sample for each KiB. */
const SAMPLING = {
  samplingInterval: 1024,
  includeObjectsCollectedByMajorGC: true,
  includeObjectsCollectedByMinorGC: true,
};

/** Runs `body`; returns its result and the bytes allocated meanwhile. */
export async function allocatedBy(body) {
  const session = new Session();
  session.connect();
  try {
    await session.post('HeapProfiler.startSampling', SAMPLING);
    const result = await body();
    const { profile } = await session.post('HeapProfiler.stopSampling');
    return { result, bytes: sum(profile.head) };
  } finally {
    session.disconnect();
  }
}

function sum({ selfSize, children }) {
  return children.reduce((bytes, child) => bytes + sum(child), selfSize);
}
