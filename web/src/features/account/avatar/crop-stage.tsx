import { type KeyboardEvent, type PointerEvent, useEffect, useId, useRef } from "react";
import * as m from "../../../paraglide/messages";
import { type Crop, drawCrop, limitCrop, maxZoom, moveCrop } from "./crop";

/** The pixels of the stage, for screens with two pixels for each of ours. */
const stagePixels = 576;
/** The part of the square by which an arrow key moves, and with shift. */
const step = 0.03;
const largeStep = 0.15;
const zoomStep = 1.1;

/** Shows the square that is kept, and changes it by dragging, by keys and by the control below. */
export function CropStage({ picture, crop, onChange }: { picture: ImageBitmap; crop: Crop; onChange: (crop: Crop) => void }) {
  const stage = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const dragged = useRef<{ x: number; y: number } | null>(null);
  const id = useId();

  // The button that chose the picture is gone.
  useEffect(() => stage.current?.focus(), []);
  useEffect(() => {
    if (canvas.current) drawCrop(canvas.current, picture, crop);
  }, [picture, crop]);

  const zoomTo = (zoom: number): void => onChange(limitCrop(picture, { ...crop, zoom }));
  // A listener of React cannot keep the page from scrolling.
  const onWheel = useRef<(event: WheelEvent) => void>(() => undefined);
  useEffect(() => {
    onWheel.current = (event) => {
      event.preventDefault();
      zoomTo(crop.zoom * Math.exp(-event.deltaY / 400));
    };
  });
  useEffect(() => {
    const element = canvas.current;
    const listen = (event: WheelEvent): void => onWheel.current(event);
    element?.addEventListener("wheel", listen, { passive: false });
    return () => element?.removeEventListener("wheel", listen);
  }, []);

  function onKeyDown(event: KeyboardEvent): void {
    const distance = event.shiftKey ? largeStep : step;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-distance, 0],
      ArrowRight: [distance, 0],
      ArrowUp: [0, -distance],
      ArrowDown: [0, distance],
    };
    const move = moves[event.key];
    if (move) onChange(moveCrop(picture, crop, ...move));
    else if (event.key === "+" || event.key === "=") zoomTo(crop.zoom * zoomStep);
    else if (event.key === "-") zoomTo(crop.zoom / zoomStep);
    else return;
    event.preventDefault();
  }

  function onPointerMove(event: PointerEvent<HTMLCanvasElement>): void {
    const from = dragged.current;
    if (!from) return;
    const { width } = event.currentTarget.getBoundingClientRect();
    dragged.current = { x: event.clientX, y: event.clientY };
    onChange(moveCrop(picture, crop, (from.x - event.clientX) / width, (from.y - event.clientY) / width));
  }

  return (
    <div className="space-y-4">
      <div
        ref={stage}
        role="group"
        tabIndex={0}
        aria-label={m.avatar_position()}
        aria-describedby={`${id}-help`}
        onKeyDown={onKeyDown}
        className="relative mx-auto aspect-square w-full max-w-72 overflow-hidden rounded border border-line bg-sunken"
      >
        <canvas
          ref={canvas}
          width={stagePixels}
          height={stagePixels}
          aria-hidden
          className="size-full cursor-grab touch-none active:cursor-grabbing"
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            dragged.current = { x: event.clientX, y: event.clientY };
          }}
          onPointerMove={onPointerMove}
          onPointerUp={() => (dragged.current = null)}
          onPointerCancel={() => (dragged.current = null)}
        />
        {/* What is outside of the circle is kept, and is not shown on this page. */}
        <div aria-hidden className="pointer-events-none absolute inset-0 rounded-full shadow-[0_0_0_100rem_rgb(0_0_0/0.45)] forced-colors:border-2" />
      </div>
      <p id={`${id}-help`}>{m.avatar_position_help()}</p>
      <div className="flex items-center gap-3">
        <label htmlFor={`${id}-zoom`} className="font-medium text-ink">
          {m.avatar_zoom()}
        </label>
        <input
          id={`${id}-zoom`}
          type="range"
          min={1}
          max={maxZoom}
          step={0.05}
          value={crop.zoom}
          aria-valuetext={`${Math.round(crop.zoom * 100)}%`}
          onChange={(event) => zoomTo(event.currentTarget.valueAsNumber)}
          className="h-6 min-w-0 flex-1 accent-accent"
        />
      </div>
    </div>
  );
}
