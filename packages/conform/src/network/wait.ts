/** Waiting for frames by the machine's clock. */

/**
 * Resolves when `done` returns true, or after `ms`.
 * @param listen sets the function that is called for each frame
 */
export async function waitOn(
  done: () => boolean,
  ms: number,
  listen: (onFrame: () => void) => void,
): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    listen(() => {
      if (!done()) return;
      clearTimeout(timer);
      resolve();
    });
  });
  listen(() => {});
}
