import type { RefObject } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';

/** The width of an element's content in whole CSS pixels, followed as it changes; 0 before it is there. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measured = () => setWidth(Math.floor(element.current!.clientWidth));
    measured();
    const observer = new ResizeObserver(measured);
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
