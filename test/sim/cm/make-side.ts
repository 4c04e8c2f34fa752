import { ModelSide } from './model-side.ts';
import { ProductSide } from './product-side.ts';
import type { Kind, Side, SideName } from './sides.ts';

export const makeSide = (kind: Kind, name: SideName, random: () => number): Side =>
  kind === 'product' ? new ProductSide(name, random) : new ModelSide(name, random);
